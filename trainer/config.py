"""Every setting of a run in one frozen value, and how presets and the command line change it."""

from __future__ import annotations

import difflib
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from trainer import correction, values
from trainer.algorithms import ALGORITHMS, BY_NAME, Algorithm
from trainer.demonstrations import Manner
from trainer.environment import Rules
from trainer.losses import KL
from trainer.model import Shape
from trainer.rewards import AUXILIARY
from trainer.tasks import catalogue
from trainer.verifier import FAULTS
from trainer.vocab import SIZE
from trainer.warmstart import WarmStart

EASY = ("retry", "default", "boundary", "membership", "limit", "sign")


class SettingError(ValueError):
    """A setting that cannot be used; the message is one sentence for the person who wrote it."""


@dataclass(frozen=True, slots=True)
class Config:
    """What a run does. A fault is a change of some of these at a step."""

    seed: int = 0
    steps: int = 60
    eval_every: int = 0
    # tasks and episodes
    mix: Mapping[str, float] = field(default_factory=lambda: dict.fromkeys(EASY, 1.0))
    curriculum: str = "none"
    max_turns: int = 10
    max_length: int = 160
    history_leaks: bool = False
    key_leaks: bool = False
    # policy: tiny, a transformers architecture, or a folder with a model; recompute trades activations for a second forward pass
    policy: str = "tiny"
    sharded: bool = False
    bf16: bool = False
    recompute: bool = False
    # warm start
    sft_steps: int = 300
    sft_lr: float = 4e-3
    manner: Mapping[str, float] = field(default_factory=dict)
    warm_leaks: bool = False
    # sampling: prompts x samples rollouts per step; lag is how many versions the sampler is behind; sync_stuck keeps the sampler's weights
    # as they are and says nothing; reported_temperature is a sampler's mistake: log-probabilities of another temperature than the one it
    # samples at; actor samples in a process of its own, ahead by up to queue batches; max_staleness drops older groups; solved_share of
    # the tasks start already solved
    prompts: int = 8
    samples: int = 8
    temperature: float = 1.0
    reported_temperature: float | None = None
    lag: int = 0
    sync_stuck: bool = False
    actor: bool = False
    queue: int = 2
    max_staleness: int | None = None
    solved_share: float = 0.0
    # rewards
    aux: Mapping[str, float] = field(default_factory=lambda: {"partial": 0.2})
    verifier: tuple[str, ...] = ()
    flaky_rate: float = 0.6
    # loss; None takes the algorithm's own
    algorithm: str = "grpo"
    clip_low: float | None = None
    clip_high: float | None = None
    dual_clip: float | None = None
    unclipped: bool = False
    kl: float = 0.02
    kl_form: str = "k3"
    kl_in_reward: bool = False
    entropy: float = 0.0
    entropy_target: float | None = None
    correction: str = "none"
    correction_cap: float = 2.0
    echo: float = 0.0
    # a teacher that is told the answer: frozen at the start, or (live) moving with the student
    live_teacher: bool = False
    # step signal: weight of a process reward model's steps
    step_model: float = 0.0
    # value (for algorithms that learn one); value_start: what a critic starts from
    value: str = "head"
    value_start: str = "policy"
    value_coefficient: float = 0.1
    gamma: float = 1.0
    lam: float = 1.0
    # optimisation
    optimizer: str = "adamw"
    lr: float = 5e-4
    grad_clip: float = 1.0
    guard: bool = False
    guard_weight: float = 100.0
    minibatches: int = 2
    epochs: int = 1

    def __post_init__(self) -> None:
        for name, allowed in (
            ("algorithm", tuple(BY_NAME)),
            ("kl_form", tuple(KL)),
            ("optimizer", ("adamw", "sgd")),
            ("value", values.FORMS),
            ("correction", correction.FORMS),
        ):
            one_of(name, getattr(self, name), allowed)
        for name, keys, allowed in (
            ("mix", self.mix, catalogue.FAMILIES),
            ("aux", self.aux, tuple(AUXILIARY)),
            ("manner", self.manner, tuple(f.name for f in fields(Manner))),
            ("verifier", self.verifier, FAULTS),
        ):
            for key in keys:
                one_of(name, key, allowed)
        for name in ("steps", "prompts", "samples", "minibatches", "epochs", "sft_steps", "max_turns"):
            if getattr(self, name) < 1:
                raise SettingError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("lag", "lr", "grad_clip", "kl", "echo", "step_model", "eval_every"):
            if not getattr(self, name) >= 0:
                raise SettingError(f"{name} must not be negative, but is {getattr(self, name)}")
        if not self.temperature > 0:
            raise SettingError(f"temperature must be above 0, not {self.temperature}")
        if not self.guard_weight > 0:
            raise SettingError(f"guard_weight must be above 0, not {self.guard_weight}")
        if self.reported_temperature is not None and not self.reported_temperature > 0:
            raise SettingError(f"reported_temperature must be above 0, not {self.reported_temperature}")
        if not self.correction_cap >= 1:
            raise SettingError(f"correction_cap must be at least 1, not {self.correction_cap}")
        if not 40 <= self.max_length <= 1024:
            raise SettingError(f"max_length must be 40 to 1024 tokens, not {self.max_length}")
        if not self.mix or not all(weight > 0 for weight in self.mix.values()):
            raise SettingError("mix must give at least one task family a weight above 0")
        if self.samples < 2 and self.rule.advantage in ("grpo", "centred", "rloo"):
            raise SettingError(f"samples must be at least 2 for {self.algorithm}, which compares the samples of a group")

    @property
    def rule(self) -> Algorithm:
        """The algorithm with this run's clip range."""
        rule = BY_NAME[self.algorithm]
        if self.unclipped:
            return replace(rule, low=float("inf"), high=float("inf"), dual=None)
        own: dict[str, Any] = {"low": self.clip_low, "high": self.clip_high, "dual": self.dual_clip}
        return replace(rule, **{name: value for name, value in own.items() if value is not None})

    @property
    def rules(self) -> Rules:
        return Rules(self.max_turns, self.history_leaks, self.key_leaks)

    @property
    def warm_start(self) -> WarmStart:
        informed = Rules(key_leaks=True, history_leaks=True) if self.warm_leaks else Rules()
        return WarmStart(
            dict(self.mix), Manner(**self.manner), informed, Shape(SIZE, length=max(160, self.max_length)), steps=self.sft_steps, lr=self.sft_lr
        )


TYPES = typing.get_type_hints(Config)
SETTINGS = tuple(f.name for f in fields(Config))


def changed(config: Config, settings: Mapping[str, Any]) -> Config:
    """``config`` with ``settings`` applied; ``aux.word`` names one entry of a table. Raises SettingError on an unknown name or a wrong type."""
    values: dict[str, Any] = {}
    for name, value in settings.items():
        head, _, entry = name.partition(".")
        one_of("setting", head, SETTINGS)
        if entry:
            table = values.get(head, getattr(config, head))
            if not isinstance(table, Mapping):
                raise SettingError(f"{head} is not a table, so {name!r} cannot be set")
            value = {**table, entry: value}
        values[head] = _typed(head, value)
    return replace(config, **values)


def read_assignment(text: str) -> tuple[str, Any]:
    """``key=value`` from the command line: the value is read as TOML, or as it stands when it is none."""
    name, equals, value = text.partition("=")
    if not equals:
        raise SettingError(f"--set takes key=value, for example --set lr=1e-3, not {text!r}")
    try:
        return name.strip(), tomllib.loads(f"v = {value}")["v"]
    except tomllib.TOMLDecodeError:
        return name.strip(), value.strip()


def _typed(name: str, value: Any) -> Any:
    wanted = TYPES[name]
    options = typing.get_args(wanted) if isinstance(wanted, types.UnionType) else (wanted,)
    if value is None and type(None) in options:
        return None
    base = next(option for option in options if option is not type(None))
    origin = typing.get_origin(base) or base
    if origin is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if origin is tuple and isinstance(value, (list, tuple, str)):
        return tuple(part for part in (value.split("+") if isinstance(value, str) else value) if part)
    if origin is int and isinstance(value, bool):
        raise SettingError(f"{name} must be a whole number, not {value!r}")
    if origin in (int, str, bool) and isinstance(value, origin):
        return value
    if issubclass(origin, Mapping) and isinstance(value, Mapping) and all(isinstance(v, (int, float)) for v in value.values()):
        return {str(key): float(v) for key, v in value.items()}
    kind = {int: "a whole number", float: "a number", str: "a word", bool: "true or false", tuple: "a list of words"}.get(
        origin, "a table of numbers"
    )
    raise SettingError(f"{name} must be {kind}, not {value!r}")


def one_of(what: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        near = difflib.get_close_matches(str(value), allowed, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(allowed)}"
        raise SettingError(f"{what} {value!r} is not known; {hint}")


def algorithm_table() -> str:
    """One line per algorithm."""
    return "\n".join(f"  {a.name:16} {a.about}" for a in ALGORITHMS)
