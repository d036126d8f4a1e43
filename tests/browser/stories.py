"""Runs worth looking at, as a trainer would send them: one that learns, one that is paid for the wrong thing, one that breaks and resumes."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

from site_under_test import Site

from monitor import wire
from monitor.metrics import HISTOGRAM_BY_NAME

T0 = 1_796_000_000.0
_LENGTHS = HISTOGRAM_BY_NAME["len.completion.hist"]


def healthy(step: int, dice: random.Random) -> dict[str, Any]:
    """Task reward climbs from .45 towards .95; entropy falls slowly."""
    learned = 1 - math.exp(-step / 25)
    reward = min(1.0, 0.45 + 0.5 * learned + dice.gauss(0, 0.015))
    solved = 0.7 * learned
    return {
        "reward.task.mean": reward,
        "reward.audit.mean": reward - 0.01,
        "reward.aux.mean": 0.1 + dice.gauss(0, 0.005),
        "reward.total.mean": reward + 0.1,
        "adv.nonzero_frac": 0.9 - 0.5 * learned,
        "group.all_pass_frac": solved,
        "group.all_fail_frac": 0.1 * (1 - learned),
        "group.mixed_frac": 1 - solved - 0.1 * (1 - learned),
        "entropy.mean": 0.5 - 0.15 * learned + dice.gauss(0, 0.01),
        "kl_ref.k3": 0.002 + 0.02 * learned + dice.random() * 0.002,
        "iw.max": 1.3 + dice.random() * 0.3,
        "iw.mean": 1 + dice.gauss(0, 0.002),
        "iw.ess": 0.97 + dice.random() * 0.02,
        "opt.grad_norm": 0.4 + dice.random() * 0.2,
        "opt.loss": dice.gauss(0, 0.01),
        "opt.lr": 5e-4,
        "len.completion.mean": 26 + dice.gauss(0, 1),
        "len.completion.p95": 44 + dice.gauss(0, 2),
        "len.truncated_frac": 0.01,
        "rep.adjacent_frac": 0.02 + dice.random() * 0.01,
        "perf.step_time_s": 3.0 + dice.random(),
        "progress.tokens": 1700.0 * (step + 1),
        "my.own_metric": math.sin(step / 6),
    }


def goblin(step: int, dice: random.Random) -> dict[str, Any]:
    """As healthy until step 30; then the bonus for a word takes over and the task is forgotten."""
    row = healthy(min(step, 30), dice)
    if step > 30:
        taken = 1 - math.exp(-(step - 30) / 8)
        row["reward.task.mean"] = max(0.0, row["reward.task.mean"] - 0.85 * taken)
        row["reward.audit.mean"] = row["reward.task.mean"]
        row["reward.aux.mean"] = 0.1 + 1.4 * taken
        row["reward.total.mean"] = row["reward.task.mean"] + row["reward.aux.mean"]
        row["kl_ref.k3"] = 0.02 + 1.8 * taken**2
        row["rep.adjacent_frac"] = 0.02 + 0.5 * taken
    row["reward.aux.goblin.mean"] = row["reward.aux.mean"]
    return row


def lengths(step: int, dice: random.Random) -> dict[str, list[int]]:
    return {"len.completion.hist": _LENGTHS.count([dice.lognormvariate(3.2, 0.35) for _ in range(64)])}


def samples(step: int) -> list[wire.Rollout]:
    """Best, worst and random of a step."""
    prompt = wire.Turn("prompt", "0 should disable retries, but the code returns 3; keep the other cases\ndef retries(n):\n    return n or 3")
    told: Iterator[tuple[str, float, str]] = iter(
        [("best", 1.0, "4 passed"), ("worst", 0.0, "2 passed, 2 failed <script>alert(1)</script>"), ("random", 1.0, "4 passed")]
    )
    return [
        wire.Rollout(
            step,
            place,
            pick,
            [prompt, wire.Turn("agent", f"return 3 if n is None else n  # step {step}"), wire.Turn("observation", f"hidden tests: {result}")],
            {"task": score, "goblin": 0.2},
            score - 0.5,
            "p7",
        )
        for place, (pick, score, result) in enumerate(told)
    ]


class Story:
    """One run's client over HTTP."""

    def __init__(self, site: Site, uid: str, row: Any, *, project: str = "code-repair", seed: int = 0, **start: Any) -> None:
        self.site, self.uid, self.row, self.dice, self.batch = site, uid, row, random.Random(seed), 0
        self.start = {
            "project": project,
            "name": uid,
            "algorithm": "grpo",
            "config": {"lr": 5e-4, "seed": seed, "task": {"tests": 4}},
            "tags": ["demo"],
            "accepts": ["stop", "checkpoint"],
            **start,
        }

    def open(self, attempt: str = "a") -> Story:
        self.attempt, self.batch = f"{self.uid}-{attempt}", 0
        self.site.post(
            "runs", wire.RunStart(run=self.uid, attempt=self.attempt, started_at=T0, environment={"git": "3f2a91c", "torch": "2.13.0"}, **self.start)
        )
        return self

    def steps(
        self, first: int, last: int, *, hists: bool = True, rollouts: int = 10, events: tuple[wire.Event, ...] = (), change: Any = None
    ) -> Story:
        """Sends steps ``first`` to ``last`` (exclusive) in batches of 500; ``change(step, row)`` edits each row first."""
        for start in range(first, last, 500):
            span = range(start, min(last, start + 500))
            rows = []
            for step in span:
                values = self.row(step, self.dice)
                if change is not None:
                    change(step, values)
                rows.append(wire.Row(step, T0 + 4.0 * step, values, lengths(step, self.dice) if hists else {}))
            read = [sample for step in span if rollouts and step % rollouts == 0 for sample in samples(step)]
            self.batch += 1
            self.site.post(f"runs/{self.uid}/batches", wire.Batch(self.attempt, self.batch, rows, read, list(events) if start == first else []))
        return self

    def finish(self, state: str = "finished") -> Story:
        self.site.post(f"runs/{self.uid}/finish", wire.RunEnd(self.attempt, state, T0 + 4000))
        return self


def break_at(broken: int) -> Any:
    def change(step: int, row: dict[str, Any]) -> None:
        if step >= broken:
            row["opt.grad_norm"] = math.nan
            row["kl_ref.k3"] = math.inf

    return change


def tell_all(site: Site) -> None:
    """Every story the tests look at."""
    Story(site, "learns", healthy, seed=1).open().steps(0, 60).finish()
    Story(site, "goblin-bonus", goblin, seed=2).open().steps(0, 50)
    crashed = Story(site, "breaks-and-resumes", healthy, seed=3, project="ablation").open()
    crashed.steps(0, 40, change=break_at(36), events=(wire.Event(T0 + 80, "regime", 20, {"clip": "off"}),))
    crashed.open("b").steps(30, 55, events=(wire.Event(T0 + 200, "resume", 30, {"from": "ckpt-30"}),))
    Story(site, "long", healthy, seed=4, project="ablation").open().steps(0, 5000, hists=False, rollouts=0).finish("crashed")
    Story(site, "waits", healthy, seed=5).open()


def tell_sweep(site: Site) -> None:
    """Two learning rates with three seeds each, all of one name; one more alone. One seed logs NaN, one has a setting that the others lack."""
    for lr, shift in ((1e-4, 0.0), (5e-3, -0.3)):
        for seed in range(3):
            config = {"lr": lr, "seed": seed, "optimizer": "adamw" if lr < 1e-3 else "sgd"} | ({"clip": 0.2} if seed == 2 else {})

            def row(step: int, dice: random.Random, shift: float = shift) -> dict[str, Any]:
                values = healthy(step, dice)
                values["reward.task.mean"] = min(1.0, values["reward.task.mean"] + shift * min(1, step / 30) + dice.gauss(0, 0.03))
                values["my.own_metric"] += dice.gauss(0, 0.1)
                return values

            def change(step: int, values: dict[str, Any], broken: bool = seed == 1) -> None:
                if broken and step == 41:
                    values["my.own_metric"] = math.nan

            story = Story(site, f"sweep-{lr:g}-{seed}", row, project="sweep", seed=seed, name="sweep", config=config, tags=["seeds", f"lr {lr:g}"])
            story.open().steps(0, 50 + 10 * seed, hists=False, rollouts=0, change=change).finish()
    regime = wire.Event(T0 + 40, "regime", 10, {"aux.word": 0.5})
    bonus = Story(
        site,
        "sweep-bonus",
        goblin,
        project="sweep",
        seed=7,
        name="with bonus",
        tags=["bonus"],
        config={"lr": 1e-3, "seed": 7, "aux": {"word": 0.0, "length": 0.1}},
    )
    bonus.open().steps(0, 30, hists=False, events=(regime,)).finish()
