"""A curve on which each detector fires and a like one on which it must not: shown in the documentation and held by the tests.

Every example is the same made-up healthy run with one thing changed from row ``AT`` on. Noise is a fixed hash of row and metric, so an example is the
same everywhere.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from monitor.detect.contract import Context

ROWS = 70
AT = 40
"""The row from which an example departs from the healthy run."""

Row = dict[str, float]
Change = Callable[[int, Row], Mapping[str, float]]
"""Rows since ``AT`` (0 and up) and the healthy row -> what is different."""


@dataclass(frozen=True, slots=True)
class Example:
    """``shown`` is the series that a chart should draw, ``says`` what the curve is. ``change`` turns the healthy row into the example's."""

    shown: str
    says: str
    change: Change
    at: int = AT
    context: Context = field(default_factory=Context)

    def rows(self, count: int = ROWS) -> list[Row]:
        """The example's rows: canonical names and finite floats."""
        made = []
        for i in range(count):
            row = healthy(i)
            if i >= self.at:
                changed = self.change(i - self.at, dict(row))
                if "reward.task.mean" in changed:
                    row["reward.audit.mean"] = changed["reward.task.mean"] + 0.02 * _noise(i, "audit")
                row.update(changed)
            made.append(row)
        return made


def _noise(i: int, name: str) -> float:
    """Roughly normal with variance 1, fixed by row and name: the sum of four uniform numbers."""
    parts = [zlib.crc32(f"{name}:{i}:{k}".encode()) / 2**32 - 0.5 for k in range(4)]
    return sum(parts) * math.sqrt(3.0)


def healthy(i: int) -> Row:
    """Row ``i`` of a run that goes well: the task reward climbs from .4 to .75, entropy and signal decline slowly, the KL grows steadily."""
    return dict(_healthy(i))


@lru_cache(maxsize=1024)
def _healthy(i: int) -> Row:
    learned = 1 - math.exp(-i / 15)
    return {
        "reward.task.mean": 0.4 + 0.35 * learned + 0.02 * _noise(i, "task"),
        "reward.aux.mean": 0.5 + 0.2 * learned + 0.01 * _noise(i, "aux"),
        "reward.aux.format.mean": 0.5 + 0.2 * learned + 0.01 * _noise(i, "aux"),
        "reward.audit.mean": 0.4 + 0.35 * learned + 0.03 * _noise(i, "audit"),
        "reward.total.mean": 0.9 + 0.55 * learned + 0.03 * _noise(i, "total"),
        "reward.aux.share": 0.15 + 0.03 * _noise(i, "share"),
        "group.reward_std": (0.35 - 0.1 * learned) * math.exp(0.1 * _noise(i, "std")),
        "adv.nonzero_frac": 0.9 - 0.3 * learned + 0.03 * _noise(i, "nonzero"),
        "adv.abs_max": 2.5 * math.exp(0.1 * _noise(i, "adv")),
        "group.all_pass_frac": 0.05 + 0.2 * learned + 0.02 * _noise(i, "pass"),
        "group.all_fail_frac": 0.1 - 0.05 * learned + 0.01 * _noise(i, "fail"),
        "entropy.mean": (0.6 - 0.2 * learned) * math.exp(0.04 * _noise(i, "entropy")),
        "kl_ref.k3": (0.002 + 0.001 * i) * math.exp(0.15 * _noise(i, "kl")),
        "iw.mean": 1 + 0.01 * _noise(i, "iw"),
        "iw.ess": 0.93 * math.exp(0.02 * _noise(i, "ess")),
        "mismatch.kl.k3": 4e-4 * math.exp(0.2 * _noise(i, "mismatch")),
        "opt.grad_norm": 0.4 * math.exp(0.15 * _noise(i, "grad")),
        "opt.loss": 0.01 * _noise(i, "loss"),
        "opt.lr": 1e-6,
        "len.completion.mean": 400 * math.exp(0.05 * _noise(i, "length")),
        "len.truncated_frac": 0.04 + 0.01 * _noise(i, "cut"),
        "rep.adjacent_frac": 0.01 * math.exp(0.1 * _noise(i, "rep")),
        "stale.mean": 1.0,
        "perf.step_time_s": 30 * math.exp(0.05 * _noise(i, "time")),
        "env.error_frac": 0.02 + 0.005 * _noise(i, "error"),
        "batch.sequences": 256.0,
    }


def _grow(per_row: float, most: float) -> Callable[[int], float]:
    return lambda age: min(math.exp(per_row * (age + 1)), most)


def _fading(age: int, row: Row, name: str = "reward.task.mean", rate: float = 0.12) -> float:
    return row[name] * math.exp(-rate * max(0, age - 3))


def _solved(age: int, row: Row) -> Row:
    full = {"reward.task.mean": 0.97, "reward.audit.mean": 0.97, "group.all_pass_frac": 0.95}
    return {**full, "adv.nonzero_frac": 0.05, "entropy.mean": row["entropy.mean"] * math.exp(-0.2 * min(age, 15))}


FIRES: Mapping[str, Example] = {
    "non_finite": Example("opt.loss", "the loss is not a number from one row on", lambda age, row: {"opt.loss": math.nan}),
    "peak_and_fall": Example(
        "reward.task.mean", "the task reward decays from its best level", lambda age, row: {"reward.task.mean": _fading(age, row)}
    ),
    "aux_divergence": Example(
        "reward.aux.mean",
        "the format reward surges, entropy rises with it, the task pays",
        lambda age, row: {
            "reward.aux.mean": row["reward.aux.mean"] + 0.3 * age,
            "entropy.mean": row["entropy.mean"] * _grow(0.08, 4)(age),
            "reward.task.mean": _fading(age, row),
        },
    ),
    "aux_share": Example(
        "reward.aux.share",
        "a bonus comes to decide which sample of a group is reinforced, long before the task pays for it",
        lambda age, row: {"reward.aux.share": min(1.1, 0.2 + 0.06 * age), "reward.aux.mean": row["reward.aux.mean"] + 0.02 * age},
    ),
    "audit_gap": Example(
        "reward.audit.mean",
        "the trained reward keeps rising, the independent one falls",
        lambda age, row: {
            "reward.task.mean": min(0.98, row["reward.task.mean"] + 0.02 * age),
            "reward.audit.mean": _fading(age, row, "reward.audit.mean"),
        },
    ),
    "eval_gap": Example(
        "eval.task.mean",
        "every fifth row an evaluation: held-out reward falls from .7 while training holds",
        lambda age, row: {"eval.task.mean": 0.5 + 0.02 * age if age <= 10 else max(0.2, 0.9 - 0.02 * age)} if age % 5 == 0 else {},
        at=5,
    ),
    "no_signal": Example(
        "adv.nonzero_frac", "hardly a sample has an advantage, and the task is not solved", lambda age, row: {"adv.nonzero_frac": 0.02}
    ),
    "all_fail": Example("group.all_fail_frac", "most groups fail from one row to the next", lambda age, row: {"group.all_fail_frac": 0.85}),
    "weight_explosion": Example(
        "iw.ess",
        "the effective sample size collapses, gradients spike with it",
        lambda age, row: {"iw.ess": 0.15 * math.exp(0.1 * _noise(age, "e")), "opt.grad_norm": row["opt.grad_norm"] * 12},
    ),
    "mismatch": Example(
        "mismatch.kl.k3",
        "the sampler drifts away from the trainer, the KL follows",
        lambda age, row: {"mismatch.kl.k3": row["mismatch.kl.k3"] * _grow(0.5, 300)(age), "kl_ref.k3": row["kl_ref.k3"] * _grow(0.3, 30)(age)},
    ),
    "kl_acceleration": Example(
        "kl_ref.k3",
        "the KL doubles every three rows and answers grow",
        lambda age, row: {
            "kl_ref.k3": row["kl_ref.k3"] * _grow(0.23, 50)(age),
            "len.completion.mean": row["len.completion.mean"] * _grow(0.06, 3)(age),
        },
    ),
    "entropy_high": Example(
        "entropy.mean",
        "entropy climbs while the task falls",
        lambda age, row: {"entropy.mean": row["entropy.mean"] * _grow(0.1, 6)(age), "reward.task.mean": _fading(age, row)},
    ),
    "entropy_low": Example(
        "entropy.mean",
        "entropy dies at a mediocre reward, and with it the signal",
        lambda age, row: {"entropy.mean": row["entropy.mean"] * math.exp(-0.3 * min(age, 20)), "adv.nonzero_frac": 0.1, "reward.task.mean": 0.6},
        at=25,
    ),
    "length_runaway": Example(
        "len.completion.mean",
        "answers grow to the limit and entropy with them",
        lambda age, row: {
            "len.completion.mean": row["len.completion.mean"] * _grow(0.08, 5)(age),
            "len.truncated_frac": min(1.0, 0.04 + 0.03 * age),
            "entropy.mean": row["entropy.mean"] * _grow(0.06, 3)(age),
        },
    ),
    "length_collapse": Example(
        "len.completion.mean",
        "answers shrink to a few tokens and the task falls",
        lambda age, row: {"len.completion.mean": row["len.completion.mean"] * math.exp(-0.2 * min(age, 20)), "reward.task.mean": _fading(age, row)},
    ),
    "truncation": Example("len.truncated_frac", "seven of ten answers are cut from one row on", lambda age, row: {"len.truncated_frac": 0.7}),
    "repetition": Example(
        "rep.adjacent_frac",
        "one word over and over, entropy out of range",
        lambda age, row: {"rep.adjacent_frac": min(0.9, 0.02 * (age + 1)), "entropy.mean": row["entropy.mean"] * _grow(0.08, 3)(age)},
    ),
    "grad_spike": Example(
        "opt.grad_norm",
        "gradients stay ten times too large and the KL runs ahead",
        lambda age, row: {"opt.grad_norm": row["opt.grad_norm"] * 10, "kl_ref.k3": row["kl_ref.k3"] * _grow(0.3, 30)(age)},
    ),
    "huge_advantage": Example("adv.abs_max", "one group without spread", lambda age, row: {"adv.abs_max": 7428.0} if age == 0 else {}),
    "learning_nothing": Example("opt.grad_norm", "loss and gradient are exactly 0", lambda age, row: {"opt.grad_norm": 0.0, "opt.loss": 0.0}),
    "refused_updates": Example("opt.skipped", "the gate refuses updates row after row", lambda age, row: {"opt.skipped": 2.0}),
    "dead_reward": Example("reward.aux.format.mean", "a format pattern that never matches", lambda age, row: {"reward.aux.format.mean": 0.0}, at=0),
    "environment_errors": Example(
        "env.error_frac",
        "half of the episodes end in errors and the task falls",
        lambda age, row: {"env.error_frac": 0.5, "reward.task.mean": _fading(age, row)},
    ),
    "staleness": Example("stale.mean", "rollouts get older and older", lambda age, row: {"stale.mean": 1.0 + 0.5 * age}),
    "slowdown": Example("perf.step_time_s", "steps take four times as long", lambda age, row: {"perf.step_time_s": row["perf.step_time_s"] * 4}),
}
"""Detector -> a curve on which it speaks."""

QUIET: Mapping[str, Example] = {
    "non_finite": Example("opt.loss", "a negative loss", lambda age, row: {"opt.loss": -3.0}),
    "peak_and_fall": Example(
        "reward.task.mean", "one bad batch", lambda age, row: {"reward.task.mean": row["reward.task.mean"] * 0.7} if age == 0 else {}
    ),
    "aux_divergence": Example(
        "reward.aux.mean",
        "format is learned fast, the task four rows later",
        lambda age, row: {"reward.aux.mean": min(0.98, 0.55 + 0.05 * age), "reward.task.mean": min(0.95, 0.45 + 0.05 * max(0, age - 4))},
        at=10,
    ),
    "aux_share": Example(
        "reward.aux.share",
        "the prompts are solved: what is left to tell samples apart is the format",
        lambda age, row: {**_solved(age, row), "reward.aux.share": 0.95, "group.reward_std": 0.03},
    ),
    "audit_gap": Example(
        "reward.audit.mean", "a stricter verifier, always .25 lower", lambda age, row: {"reward.audit.mean": row["reward.task.mean"] - 0.25}, at=0
    ),
    "eval_gap": Example(
        "eval.task.mean", "evaluations wobble", lambda age, row: {"eval.task.mean": 0.6 + 0.03 * _noise(age, "v")} if age % 5 == 0 else {}, at=5
    ),
    "no_signal": Example("adv.nonzero_frac", "the prompts are solved: information", _solved),
    "all_fail": Example("group.all_fail_frac", "a harder stage: a few more groups fail", lambda age, row: {"group.all_fail_frac": 0.3}),
    "weight_explosion": Example("iw.ess", "the sample size halves and nothing else moves", lambda age, row: {"iw.ess": 0.45}),
    "mismatch": Example("mismatch.kl.k3", "ten times a tiny mismatch is tiny", lambda age, row: {"mismatch.kl.k3": row["mismatch.kl.k3"] * 5}),
    "kl_acceleration": Example("kl_ref.k3", "one spike", lambda age, row: {"kl_ref.k3": row["kl_ref.k3"] * 30} if age == 0 else {}),
    "entropy_high": Example(
        "entropy.mean",
        "exploration pays: entropy rises with the reward",
        lambda age, row: {
            "entropy.mean": row["entropy.mean"] * _grow(0.03, 2)(age),
            "reward.task.mean": min(0.98, row["reward.task.mean"] + 0.02 * age),
        },
    ),
    "entropy_low": Example("entropy.mean", "entropy dies because the task is solved", _solved),
    "length_runaway": Example(
        "len.completion.mean",
        "longer answers, better answers",
        lambda age, row: {
            "len.completion.mean": row["len.completion.mean"] * _grow(0.04, 3)(age),
            "reward.task.mean": min(0.98, row["reward.task.mean"] + 0.012 * age),
        },
    ),
    "length_collapse": Example(
        "len.completion.mean",
        "shorter answers of the same quality",
        lambda age, row: {"len.completion.mean": row["len.completion.mean"] * math.exp(-0.08 * min(age, 10))},
    ),
    "truncation": Example(
        "len.truncated_frac",
        "many cut answers while the task rises",
        lambda age, row: {"len.truncated_frac": max(0.1, 0.7 - 0.02 * age), "reward.task.mean": 0.2 + 0.02 * age},
        at=0,
    ),
    "repetition": Example("rep.adjacent_frac", "tables repeat more", lambda age, row: {"rep.adjacent_frac": 0.04}),
    "grad_spike": Example("opt.grad_norm", "one clipped spike: information", lambda age, row: {"opt.grad_norm": 9.0} if age == 0 else {}),
    "huge_advantage": Example("adv.abs_max", "ten times the median", lambda age, row: {"adv.abs_max": 25.0} if age == 0 else {}),
    "learning_nothing": Example("opt.loss", "on-policy the loss is 0 up to rounding", lambda age, row: {"opt.loss": 0.0}),
    "refused_updates": Example(
        "opt.skipped", "the gate refuses one row's updates: watched", lambda age, row: {"opt.skipped": 2.0 if age == 0 else 0.0}
    ),
    "dead_reward": Example("reward.aux.format.mean", "a reward that is constant later on", lambda age, row: {"reward.aux.format.mean": 1.0}),
    "environment_errors": Example("env.error_frac", "a few more errors", lambda age, row: {"env.error_frac": 0.1}),
    "staleness": Example("stale.mean", "constant staleness", lambda age, row: {"stale.mean": 8.0}, at=0),
    "slowdown": Example("perf.step_time_s", "one slow step", lambda age, row: {"perf.step_time_s": 200.0} if age == 0 else {}),
}
"""Detector -> a curve that resembles its fault and on which it raises no alarm."""
