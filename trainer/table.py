"""Every algorithm on the default task, several seeds: where it starts, where it ends, what it costs. All are measured by the same ruler."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainer import presets
from trainer.config import changed
from trainer.training import Training
from trainer.verifier import Verifier
from trainer.warmstart import warm_policy


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the table: a name and the settings that make it."""

    name: str
    settings: dict[str, object]


@dataclass(frozen=True, slots=True)
class Result:
    """``before`` and ``after`` are the share of :data:`ROLLOUTS` held-out rollouts that succeed before the first and after the last update (see
    ``Training.success``), ``seconds`` the CPU time of the updates: neither the warm start nor the two measurements count."""

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
    Entry("ppo: value head", {"algorithm": "ppo"}),
    Entry("ppo: critic", {"algorithm": "ppo", "value": "critic"}),
    Entry("ppo: return bins", {"algorithm": "ppo", "value": "bins"}),
    Entry("dapo", {}),
    Entry("gspo", {}),
    Entry("gspo-token", {}),
    Entry("cispo", {}),
    Entry("ctpo", {}),
    Entry("grpo: lag 4 and truncated weights", {"algorithm": "grpo", "lag": 4, "correction": "truncate"}),
    Entry("grpo: lag 4 and masked weights", {"algorithm": "grpo", "lag": 4, "correction": "mask"}),
    Entry("reward-to-go: step rewards", {"algorithm": "reward-to-go", "step_model": 0.3}),
    Entry("ppo: critic from step rewards", {"algorithm": "ppo", "value": "critic", "value_start": "step_model", "step_model": 0.3}),
    Entry("grpo: observation loss", {"algorithm": "grpo", "echo": 0.1}),
    Entry("grpo: KL in the reward", {"algorithm": "grpo", "kl_in_reward": True}),
    Entry("grpo: entropy target", {"algorithm": "grpo", "entropy_target": 0.3}),
    Entry("sft", {"kl": 0.0}),
    Entry("rejection", {"kl": 0.0}),
    Entry("distill", {"kl": 0.0}),
    Entry("on-policy-distill", {"kl": 0.0}),
    Entry("self-distill", {"kl": 0.0, "warm_leaks": True, "manner.curious": 0.7, "sft_steps": 500}),
)
STEPS = 40
ROLLOUTS = 512


def run_entry(entry: Entry, seed: int, steps: int, verifier: Verifier) -> Result:
    """Train ``entry`` once."""
    settings = {"algorithm": entry.name} | entry.settings
    config = changed(presets.load("healthy").config, {"seed": seed, "steps": steps} | settings)
    training = Training(config, warm_policy(config.warm_start, verifier), verifier)
    batches = ROLLOUTS // (config.prompts * config.samples)
    before = training.success(batches)
    started = time.process_time()
    while training.step < config.steps:
        training.advance()
    seconds = time.process_time() - started
    return Result(entry.name, seed, before, training.success(batches), seconds, config.steps)


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
