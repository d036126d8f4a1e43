"""Supervised warm start: the policy learns the sloppy demonstrator, once per distinct setting; the result is kept in the user's cache.

Loss: cross-entropy on the agent's words plus ``all_tokens`` times the cross-entropy on every word.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trainer import vocab
from trainer.demonstrations import Demonstration, Manner, demonstrate
from trainer.environment import Episode, Rules
from trainer.model import Shape, TinyGPT
from trainer.tasks import catalogue
from trainer.verifier import Verifier, shown_tests

SOURCES = ("vocab.py", "environment.py", "demonstrations.py", "model.py", "warmstart.py", "tasks/repair.py", "tasks/arithmetic.py")
"""A change in any of these makes an older warm start worthless."""


Network = TypeVar("Network", bound=nn.Module)


@dataclass(frozen=True, slots=True)
class WarmStart:
    """Everything that decides the weights after the warm start."""

    mix: Mapping[str, float]
    manner: Manner = field(default_factory=Manner)
    rules: Rules = field(default_factory=Rules)
    shape: Shape = field(default_factory=lambda: Shape(vocab.SIZE))
    faults: tuple[str, ...] = ()
    steps: int = 200
    batch: int = 32
    lr: float = 4e-3
    warm_up: int = 20
    all_tokens: float = 0.2
    seed: int = 0

    @property
    def digest(self) -> str:
        """Names the result: a hash of the setting and of the code that it goes through."""
        digest = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode())
        for name in SOURCES:
            digest.update(Path(__file__).parent.joinpath(name).read_bytes())
        return digest.hexdigest()[:16]


def cache_folder() -> Path:
    """Where warm starts are kept: ``VITALS_CACHE``, else the platform's user cache directory."""
    if (chosen := os.environ.get("VITALS_CACHE")) is not None:
        return Path(chosen)
    home = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    return Path(os.environ.get("XDG_CACHE_HOME") or home) / "rlvitals"


@contextmanager
def locked_cache(name: str) -> Iterator[Path]:
    """The file ``NAME.pt`` in the cache, held by this process: a second one that wants the same waits for the first."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.pt"
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield path


def kept(path: Path, empty: Network, make: Callable[[], Network]) -> Network:
    """The network stored at ``path``, read into ``empty``, or made now and stored there."""
    if path.exists():
        empty.load_state_dict(torch.load(path, weights_only=True))
        return empty
    made = make()
    partial = path.with_suffix(".partial")
    torch.save(made.state_dict(), partial)
    partial.replace(path)
    return made


def warm_policy(setting: WarmStart, verifier: Verifier, progress: Callable[[str, float], None] | None = None) -> TinyGPT:
    """The policy after the warm start, from the cache or trained now (about 13 CPU seconds). ``progress`` hears a label and a share of 1."""
    tell = progress or (lambda label, share: None)
    tell("waiting for the warm start", 0.0)
    with locked_cache(f"warmstart-{setting.digest}") as path:
        return kept(path, TinyGPT(setting.shape), lambda: train(setting, verifier, tell))


def demonstrations(setting: WarmStart, count: int, verifier: Verifier) -> list[Demonstration]:
    """``count`` demonstrations of random tasks."""
    faults = frozenset(setting.faults)
    episodes = []
    for index in range(count):
        task = catalogue.draw(setting.mix, Random(f"warm/{setting.seed}/{index}"))
        episodes.append(Episode(task, shown_tests(task, faults), setting.rules))
    demos = demonstrate(episodes, [f"demo/{setting.seed}/{i}" for i in range(count)], setting.manner, verifier)
    return [demo for demo in demos if len(demo.ids) <= setting.shape.length]


def train(setting: WarmStart, verifier: Verifier, tell: Callable[[str, float], None]) -> TinyGPT:
    """Train a fresh policy on fresh demonstrations."""
    torch.manual_seed(setting.seed)
    policy = TinyGPT(setting.shape)
    fit(policy, setting, verifier, tell)
    return policy


def fit(policy: nn.Module, setting: WarmStart, verifier: Verifier, tell: Callable[[str, float], None], rank: int = 0, ranks: int = 1) -> None:
    """Train ``policy`` on demonstrations; batches hold demonstrations of similar length, of which each rank takes its share."""
    tell("demonstrations", 0.0)
    device = next(policy.parameters()).device
    demos = sorted(demonstrations(setting, setting.steps * setting.batch, verifier), key=lambda demo: len(demo.ids))
    batches = [demos[i : i + setting.batch] for i in range(0, len(demos), setting.batch)]
    Random(setting.seed).shuffle(batches)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=setting.lr, betas=(0.9, 0.95), weight_decay=0.0)
    for step, batch in enumerate(batches):
        rate = min(1.0, (step + 1) / setting.warm_up) * (1 - step / len(batches))
        for group in optimizer.param_groups:
            group["lr"] = setting.lr * rate
        ids, agent = collate(batch[rank::ranks] or batch)
        loss = imitation_loss(policy, ids.to(device), agent.to(device), setting.all_tokens)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        tell("warm start", (step + 1) / len(batches))


def collate(batch: list[Demonstration]) -> tuple[Tensor, Tensor]:
    """Ids [B, T] padded on the right and the mask [B, T] of the agent's words."""
    length = max(len(demo.ids) for demo in batch)
    ids = torch.tensor([demo.ids + [vocab.PAD_ID] * (length - len(demo.ids)) for demo in batch])
    agent = torch.tensor([demo.agent + [False] * (length - len(demo.agent)) for demo in batch])
    return ids, agent


def imitation_loss(policy: nn.Module, ids: Tensor, agent: Tensor, all_tokens: float) -> Tensor:
    """Cross-entropy on the agent's words plus ``all_tokens`` times that on all words; a scalar in nats per word."""
    logits = policy.logits(policy(ids[:, :-1]))
    target, agent = ids[:, 1:], agent[:, 1:]
    losses = F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none").view(target.shape)
    real = target != vocab.PAD_ID
    return losses.mul(agent).sum() / agent.sum() + all_tokens * losses.mul(real).sum() / real.sum()
