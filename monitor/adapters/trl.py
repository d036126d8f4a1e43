"""TRL's GRPOTrainer: one callback for what it logs, one call for what it does not.

>>> callback = VitalsCallback("code-repair", "grpo-qwen", task_reward="tests")
>>> trainer = GRPOTrainer(..., callbacks=[callback])
>>> callback.watch(trainer)          # importance weights, groups, repetition, rollouts; leave it out and only TRL's own keys are sent
>>> trainer.train()

Verified with transformers 5.24 and trl 1.16. :meth:`VitalsCallback.watch` reads members that TRL does not promise to keep
(``_compute_loss``, ``_get_per_token_logps_and_entropies``, ``_logs``); where they have changed it says so and does without them. Keys that
TRL leaves out of a log line were not measured in it, and are left out here too.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers import TrainerCallback

import monitor.client
from monitor.adapters.names import NameMap, framework
from monitor.client.batch_health import BatchHealth, Reading
from monitor.client.guard import Guard

_SUMMARY = "train_runtime"
"""Only the log line that closes a training has this key."""

ROLLOUTS_PER_BATCH = 3


class VitalsCallback(TrainerCallback):  # type: ignore[misc]
    """Logs every line of a TRL trainer to a run.

    ``run`` is an open :class:`monitor.client.Run`, used and left open; without it one is started at the beginning of training with
    ``project``, ``name``, the trainer's arguments as config and ``options`` for :func:`monitor.client.start`, and finished at the end.
    ``task_reward`` names the reward function that is the task; the other functions are auxiliary. ``guard`` asks for the step gate:
    an update that it refuses is not made. Requests to stop or checkpoint are obeyed when the run accepts them.
    """

    def __init__(
        self,
        project: str | None = None,
        name: str | None = None,
        *,
        run: monitor.client.Run | None = None,
        task_reward: str | None = None,
        guard: Guard | None = None,
        **options: Any,
    ) -> None:
        if run is None and (project is None or name is None):
            raise monitor.client.SetupError("VitalsCallback needs a project and a name, or an open run: VitalsCallback('code-repair', 'grpo-1')")
        self.run = run
        self.guard = guard
        self._owns = run is None
        self._opening = (project, name, options)
        self._task = task_reward
        self._names = NameMap(framework("trl"))
        self._watch: _Watch | None = None

    def watch(self, trainer: Any) -> None:
        """Measure what ``trainer`` computes but does not log. Call it once, before ``trainer.train()``."""
        self._watch = _Watch(trainer, self._task)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.run is None and state.is_world_process_zero:
            project, name, options = self._opening
            assert project is not None and name is not None
            if self._task is not None:
                options = {"task_reward": f"reward.fn.{self._task}.mean"} | options
            algorithm = str(getattr(args, "loss_type", "")) or None
            self.run = monitor.client.start(project, name, args.to_dict(), algorithm, **options)
        self.run = self.run or monitor.client.Run.disabled()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        optimizer = kwargs.get("optimizer")
        if self.guard is None or optimizer is None:
            return
        optimizer = getattr(optimizer, "optimizer", optimizer)
        weights, mask, advantages = self._watch.last if self._watch else (None, None, None)
        decision = self.guard.check(state.global_step + 1, optimizer, log_weights=weights, mask=mask, advantages=advantages)
        if not decision.go:
            # an optimizer passes over parameters without a gradient: the step that follows changes nothing
            optimizer.zero_grad(set_to_none=True)
        control.should_training_stop |= decision.halt

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.run is not None:
            control.should_training_stop |= self.run.should_stop

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        if self.run is None or not logs or _SUMMARY in logs:
            return
        native = {key: value for key, value in logs.items() if value is not None and isinstance(value, (int, float))}
        values = self._names.translate(native)
        hists: dict[str, list[int]] = {}
        if self._watch is not None:
            reading = self._watch.read(fresh="reward" in logs)
            values = reading.values | values
            hists = reading.hists
            if "reward" in logs:
                self.run.log_rollouts(state.global_step, self._watch.rollouts())
        if self.guard is not None:
            values["opt.skipped"] = self.guard.take_skipped()
        self.run.log(values, step=state.global_step, hists=hists)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._owns and self.run is not None:
            self.run.finish("stopped" if self.run.should_stop else "finished")


class _Watch:
    """Stands between a GRPOTrainer and its loss, and keeps what passes for the next log line."""

    def __init__(self, trainer: Any, task: str | None) -> None:
        self.last: tuple[Any, Any, Any] = (None, None, None)
        self._trainer = trainer
        args = trainer.args
        self._functions: Sequence[str] = list(getattr(trainer, "reward_func_names", ()))
        self._task = task if task is not None else self._functions[0] if len(self._functions) == 1 else None
        vocabulary = getattr(getattr(trainer.model, "config", None), "vocab_size", None)
        self._health = BatchHealth(
            vocabulary, eps_low=args.epsilon, eps_high=args.epsilon_high if args.epsilon_high is not None else args.epsilon, task="task"
        )
        self._inputs: Mapping[str, Any] | None = None
        self._seen: Any = None
        self._wrap("_compute_loss", self._around_loss)
        self._wrap("_get_per_token_logps_and_entropies", self._around_logps)

    def _wrap(self, name: str, around: Any) -> None:
        inner = getattr(self._trainer, name, None)
        if inner is None:
            print(f"vitals: this version of TRL has no {name}; importance weights are not measured", file=sys.stderr)
            return
        setattr(self._trainer, name, lambda *args, **kwargs: around(inner, *args, **kwargs))

    def _around_loss(self, inner: Any, model: Any, inputs: Mapping[str, Any]) -> Any:
        self._inputs = inputs if model.training else None
        try:
            return inner(model, inputs)
        finally:
            self._inputs = None

    def _around_logps(self, inner: Any, *args: Any, **kwargs: Any) -> Any:
        out = inner(*args, **kwargs)
        inputs, self._inputs = self._inputs, None
        if inputs is not None:
            try:
                self._observe(inputs, out[0], out[1])
            except (KeyError, ValueError, IndexError, TypeError) as error:
                print(f"vitals: a batch was not measured: {type(error).__name__}: {error}", file=sys.stderr)
        return out

    def _observe(self, inputs: Mapping[str, Any], logp: torch.Tensor, entropy: torch.Tensor | None) -> None:
        ids, mask = inputs["completion_ids"], inputs["completion_mask"]
        if "tool_mask" in inputs:
            mask = mask * inputs["tool_mask"]
        old = inputs.get("old_per_token_logps")
        behaviour = inputs.get("sampling_per_token_logps", old)
        advantages = inputs["advantages"]
        fresh = old is None or self._seen is not ids
        self._seen = ids
        self._health.observe(
            logp,
            behaviour,
            mask,
            old_logp=old,
            ref_logp=inputs.get("ref_per_token_logps"),
            entropy=entropy,
            advantages=advantages,
            token_ids=ids if fresh else None,
        )
        weights = None if behaviour is None else (logp - behaviour).detach()
        self.last = (weights, mask, advantages if advantages.dim() == 2 else advantages[:, None].expand_as(mask))

    def read(self, *, fresh: bool) -> Reading:
        """What was measured since the last line; with ``fresh``, rewards and groups of the last generation too."""
        if fresh:
            self._observe_generation()
        self._health.pack()
        reading = self._health.collect(wait=True)
        assert reading is not None
        return reading

    def _observe_generation(self) -> None:
        logs = self._trainer._logs
        columns = {name: [float("nan") if value is None else float(value) for value in logs["rewards"][name]] for name in self._functions}
        count = len(logs["advantages"])
        if not count or any(len(column) != count for column in columns.values()):
            return
        weights = self._trainer.reward_weights.tolist()
        weighted = {name: [weight * value for value in columns[name]] for name, weight in zip(self._functions, weights, strict=True)}
        rewards = {"task" if name == self._task else name: column for name, column in weighted.items()}
        total = [sum(value for value in values if value == value) for values in zip(*weighted.values(), strict=True)]
        size = int(self._trainer.num_generations)
        self._health.observe_batch(rewards, [i // size for i in range(count)], total=total, advantages=list(logs["advantages"]))

    def rollouts(self) -> list[dict[str, Any]]:
        """Best, worst and middle sample of the last generation, decoded."""
        logs = self._trainer._logs
        advantages = list(logs["advantages"])
        order = sorted(range(len(advantages)), key=advantages.__getitem__)
        picks = {"best": order[-1:], "worst": order[:1], "random": order[len(order) // 2 : len(order) // 2 + 1]}
        found = {index: pick for pick, indices in reversed(picks.items()) for index in indices}
        prompts, completions = list(logs["prompt"]), list(logs["completion"])
        return [
            {
                "ordinal": index,
                "pick": pick,
                "turns": [("prompt", _text(prompts[index])), ("agent", _text(completions[index]))],
                "rewards": {name: logs["rewards"][name][index] for name in self._functions},
                "advantage": advantages[index],
                "group": str(index // int(self._trainer.num_generations)),
            }
            for index, pick in sorted(found.items())
            if index < min(len(prompts), len(completions))
        ]


def _text(message: Any) -> str:
    """A prompt or completion as text: a plain one as it is, a conversation as its roles and contents."""
    if isinstance(message, str):
        return message
    if isinstance(message, Sequence):
        return "\n".join(f"{one.get('role')}: {one.get('content')}" if isinstance(one, Mapping) else str(one) for one in message)
    return str(message)
