"""What an RL step of the default preset costs, and what measuring it adds: ``python -m bench.trainer_overhead``.

CPU seconds of this process. Instrumentation is everything that would not be there without a monitor: entropy is counted as part of the loss (the
algorithm needs the softmax anyway), the rest of the batch's health as instrumentation. Prints the step, its parts, and the ratio of
instrumentation to forward plus backward, median over the steps.
"""

from __future__ import annotations

import statistics
import time
from random import Random
from typing import Any

import torch

from monitor.client.batch_health import BatchHealth
from trainer import policies, presets, sources
from trainer.batch import with_advantages
from trainer.training import Training
from trainer.verifier import Verifier
from trainer.vocab import SIZE
from trainer.world import World

STEPS = 20
MOST_STEP_S, MOST_SHARE = 0.6, 0.04


class Stopwatch:
    """Sums the CPU time spent in methods of an object that it wraps."""

    def __init__(self, target: Any, names: tuple[str, ...]) -> None:
        self.seconds = 0.0
        for name in names:
            setattr(target, name, self._timed(getattr(target, name)))

    def _timed(self, method: Any) -> Any:
        def timed(*args: Any, **kwargs: Any) -> Any:
            started = time.process_time()
            try:
                return method(*args, **kwargs)
            finally:
                self.seconds += time.process_time() - started

        return timed


def forward_backward(training: Training, batch: Any, before: Any) -> float:
    """CPU seconds of forward, loss and backward over the batch's minibatches, without a monitor."""
    config, learner = training.config, training.learner
    rows = list(range(len(batch.episodes)))
    Random(0).shuffle(rows)
    size = -(-len(rows) // config.minibatches)
    started = time.process_time()
    for low in range(0, len(rows), size):
        at = torch.tensor(sorted(rows[low : low + size]))
        logp, entropy, _ = training.policy.evaluate(batch.ids[at], batch.mask[at])
        ((-logp * batch.advantages[at]).sum() / batch.mask[at].sum() - 0.0 * entropy.sum()).backward()
    learner.optimizer.zero_grad(set_to_none=True)
    return time.process_time() - started


def main() -> int:
    torch.set_num_threads(1)
    verifier = Verifier()
    config = presets.load("healthy").config
    training = Training(config, policies.build(config, verifier, World()), verifier)
    whole, parts, measuring, share = [], [], [], []
    for step in range(STEPS + 2):
        started = time.process_time()
        training.advance()
        spent = time.process_time() - started
        batch, drawn, _ = sources.collect(config, training.step, training.sampler, verifier, training.world)
        before = training.learner.evaluate(batch)
        batch, returns = with_advantages(config, batch, None, before.values)
        plain = forward_backward(training, batch, before)
        health = BatchHealth(SIZE)
        watch = Stopwatch(health, ("observe", "observe_batch", "pack", "collect"))
        state = training.state()
        training.learner.update(config, batch, before, returns, health, Random(0), training.step)
        training._measure(health, batch, drawn)
        training.restore(state)
        if step >= 2:
            whole.append(spent)
            parts.append(plain)
            measuring.append(watch.seconds)
            share.append(watch.seconds / plain)
    verifier.close()
    step_s, ratio = statistics.median(whole), statistics.median(share)
    print(f"RL step of the default preset     {step_s:.3f} CPU s   (limit {MOST_STEP_S})")
    print(f"forward and backward              {statistics.median(parts):.3f} CPU s")
    print(f"instrumentation                   {statistics.median(measuring):.4f} CPU s")
    print(f"instrumentation / fwd + bwd       {ratio:.1%}         (limit {MOST_SHARE:.0%})")
    return 0 if step_s <= MOST_STEP_S and ratio <= MOST_SHARE else 1


if __name__ == "__main__":
    raise SystemExit(main())
