"""Every algorithm on the default task, several seeds: where it starts, where it ends, what it costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainer import presets
from trainer.config import changed
from trainer.damage import mean_at
from trainer.training import Training
from trainer.verifier import Verifier
from trainer.warmstart import warm_policy

Rows = list[dict[str, float]]


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the table: a name and the settings that make it."""

    name: str
    settings: dict[str, object]


@dataclass(frozen=True, slots=True)
class Result:
    """``before`` and ``after`` are the audit reward over the first three and the last five steps, ``seconds`` CPU time after the warm start."""

    name: str
    seed: int
    before: float
    after: float
    seconds: float
    steps: int


ENTRIES = (
    Entry("reinforce", {}),
    Entry("reinforce-plain", {}),
    Entry("reward-to-go", {}),
    Entry("rloo", {}),
    Entry("grpo", {}),
    Entry("drgrpo", {}),
    Entry("ppo, value head", {"algorithm": "ppo"}),
    Entry("ppo, critic", {"algorithm": "ppo", "value": "critic"}),
    Entry("ppo, return bins", {"algorithm": "ppo", "value": "bins"}),
    Entry("dapo", {}),
    Entry("gspo", {}),
    Entry("gspo-token", {}),
    Entry("cispo", {}),
    Entry("ctpo", {}),
)
STEPS = 40


def run_entry(entry: Entry, seed: int, steps: int, verifier: Verifier) -> Result:
    """Train ``entry`` once."""
    settings = {"algorithm": entry.name} | entry.settings if "algorithm" not in entry.settings else entry.settings
    config = changed(presets.load("healthy").config, {"seed": seed, "steps": steps} | settings)
    training = Training(config, warm_policy(config.warm_start, verifier), verifier)
    started = time.process_time()
    rows: Rows = []
    while training.step < config.steps:
        rows.append(training.advance().values)
    seconds = time.process_time() - started
    return Result(entry.name, seed, mean_at(rows, "reward.audit.mean", 3, 3), mean_at(rows, "reward.audit.mean", len(rows)), seconds, len(rows))


def build(entries: Sequence[Entry], seeds: Sequence[int], steps: int, tell: Callable[[str], None] = print) -> list[Result]:
    """Run all entries with all seeds."""
    results = []
    verifier = Verifier()
    try:
        for entry in entries:
            for seed in seeds:
                results.append(run_entry(entry, seed, steps, verifier))
                r = results[-1]
                tell(f"{r.name} seed {seed}: {r.before:.2f} -> {r.after:.2f} in {r.steps} steps, {r.seconds:.0f} CPU s")
    finally:
        verifier.close()
    return results


def table(results: Sequence[Result]) -> str:
    """A Markdown table, one line per entry."""
    lines = ["| algorithm | success before, by seed | after, by seed | steps | CPU s |", "|---|---|---|---|---|"]
    for name in dict.fromkeys(r.name for r in results):
        group = [r for r in results if r.name == name]
        before, after = (", ".join(f"{value:.2f}" for value in values) for values in ([r.before for r in group], [r.after for r in group]))
        lines.append(f"| {name} | {before} | {after} | {group[0].steps} | {max(r.seconds for r in group):.0f} |")
    return "\n".join(lines)
