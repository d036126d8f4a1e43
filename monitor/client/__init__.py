"""The SDK: what people put into their own training loop.

>>> import monitor.client
>>> run = monitor.client.start("code-repair", "grpo-lr3e-4", config={"lr": 3e-4})
>>> for step in range(100):
...     run.log({"reward.task.mean": 0.5, "opt.grad_norm": 0.7}, step=step)
>>> run.finish()

Base install: the standard library alone. ``monitor.client.batch_health``, ``.logprob`` and ``.guard`` need torch and are imported by name.
"""

from __future__ import annotations

from monitor.client.checks import SetupError
from monitor.client.run import Run, Stats
from monitor.client.starting import start
from monitor.wire import Rollout, Turn

__all__ = ["Rollout", "Run", "SetupError", "Stats", "Turn", "start"]
