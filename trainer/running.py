"""One run from the command line: warm start, loop, sinks, and a clean end on Ctrl-C or SIGTERM."""

from __future__ import annotations

import argparse
import signal
from pathlib import Path
from types import FrameType
from typing import NoReturn

import torch

from trainer import checkpoint
from trainer.config import Config, SettingError
from trainer.faults import Fault
from trainer.output import Collector, Jsonl, Sink, Terminal
from trainer.presets import Preset
from trainer.training import Training
from trainer.verifier import Verifier
from trainer.warmstart import warm_policy


class Interrupted(BaseException):
    """SIGINT or SIGTERM arrived."""


def run(arguments: argparse.Namespace, preset: Preset) -> int:
    """Carry out the run that the command line asked for."""
    device = choose_device(arguments.device)
    torch.set_num_threads(max(1, arguments.threads))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    if arguments.checkpoint_every < 1:
        raise SettingError(f"--checkpoint-every must be at least 1, not {arguments.checkpoint_every}")
    config = preset.config
    terminal = None if arguments.quiet else Terminal(config.steps)
    verifier = Verifier()
    sinks: list[Sink] = []
    state, reason = "crashed", None
    try:
        if arguments.jsonl:
            arguments.jsonl.open("a").close()
        resumed = arguments.checkpoint is not None and arguments.checkpoint.exists()
        collector = None
        if arguments.collector:
            name = arguments.name or f"{preset.name}-seed{config.seed}"
            collector = Collector(arguments.collector, arguments.project, name, config, preset.name, resumed)
            sinks.append(collector)
        policy = warm_policy(config.warm_start, verifier, terminal.progress if terminal else None)
        training = Training(config, policy, verifier, preset.fault, device, collector.run if collector else None)
        if resumed:
            checkpoint.load(training, arguments.checkpoint)
            for sink in sinks:
                sink.event("resume", training.step, {})
        if arguments.jsonl:
            sinks.append(Jsonl(arguments.jsonl, training.step))
        if terminal:
            sinks.append(terminal)
        state, reason = loop(training, sinks, arguments.checkpoint, arguments.checkpoint_every)
    except Interrupted:
        state, reason = "stopped", "interrupted"
    except Exception as problem:
        reason = f"{type(problem).__name__}: {problem}"
        raise
    finally:
        verifier.close()
        for sink in sinks:
            sink.close(state, reason)
    return 0 if state == "finished" or reason == "asked to stop" else 130


def loop(training: Training, sinks: list[Sink], path: Path | None = None, every: int = 10) -> tuple[str, str | None]:
    """Every remaining step; returns the end state and its reason. A checkpoint goes to ``path`` after ``every`` steps and at the end."""
    while training.step < training.config.steps:
        _announce(training.config, training.fault, training.step, sinks)
        row = training.advance()
        for sink in sinks:
            sink.row(row)
        if path is not None and (training.step % every == 0 or training.step == training.config.steps):
            checkpoint.save(training, path)
        if training.learner.halted:
            return "stopped", "the step gate refused too many updates in a row"
        if any(isinstance(sink, Collector) and sink.run.should_stop for sink in sinks):
            return "stopped", "asked to stop"
    return "finished", None


def _announce(config: Config, fault: Fault | None, step: int, sinks: list[Sink]) -> None:
    """Tell about a planned change of settings, as a user would. A fault is not announced."""
    if fault is not None and fault.announced and step == fault.at_step:
        for sink in sinks:
            sink.event("regime", step, dict(fault.patch))


def choose_device(wanted: str | None) -> torch.device:
    """``wanted``, or cuda when there is one. Raises SettingError when it cannot be used."""
    name = wanted or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as problem:
        raise SettingError(f"device {name!r} cannot be used on this machine: {str(problem).splitlines()[0]}") from None
    return device


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise Interrupted
