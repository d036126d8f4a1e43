"""One run from the command line: warm start, loop, sinks, and a clean end on Ctrl-C or SIGTERM."""

from __future__ import annotations

import argparse
import signal
from pathlib import Path
from types import FrameType
from typing import NoReturn

import torch

from trainer import checkpoint, policies
from trainer.config import Config, SettingError
from trainer.faults import Fault
from trainer.output import Collector, Jsonl, Sink, Terminal, declared
from trainer.presets import Preset
from trainer.training import Training
from trainer.verifier import Verifier
from trainer.world import World, join, launched, leave


class Interrupted(BaseException):
    """SIGINT or SIGTERM arrived."""


def run(arguments: argparse.Namespace, preset: Preset) -> int:
    """Carry out the run that the command line asked for."""
    world = join(arguments.device) if launched() else World(device=choose_device(arguments.device))
    torch.set_num_threads(max(1, arguments.threads))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    if arguments.checkpoint_every < 1:
        raise SettingError(f"--checkpoint-every must be at least 1, not {arguments.checkpoint_every}")
    if arguments.checkpoint is not None and not arguments.checkpoint.absolute().parent.is_dir():
        raise SettingError(f"--checkpoint {arguments.checkpoint}: there is no folder {arguments.checkpoint.absolute().parent}")
    config = preset.config
    if world.size > 1:
        _check_shared(config, world)
    main_rank = world.rank == 0
    terminal = None if arguments.quiet or not main_rank else Terminal(config.steps)
    verifier = Verifier()
    sinks: list[Sink] = []
    training: Training | None = None
    state, reason = "crashed", None
    try:
        if arguments.jsonl and main_rank:
            arguments.jsonl.open("a").close()
        declaration = declared(config, preset.name, preset.fault)
        name = arguments.name or f"{preset.name}-seed{config.seed}"
        resumed = arguments.checkpoint is not None and arguments.checkpoint.exists()
        collector = None
        if arguments.collector and main_rank:
            collector = Collector(arguments.collector, arguments.project, name, declaration, resumed)
            sinks.append(collector)
        policy = policies.build(config, verifier, world, terminal.progress if terminal else None)
        training = Training(config, policy, verifier, preset.fault, world, collector.run if collector else None)
        if resumed:
            checkpoint.load(training, arguments.checkpoint)
            for sink in sinks:
                sink.event("resume", training.step, {})
        if arguments.jsonl and main_rank:
            sinks.append(Jsonl(arguments.jsonl, {"run": name, **declaration}, training.step))
        if terminal:
            sinks.append(terminal)
        state, reason = loop(training, sinks, arguments.checkpoint, arguments.checkpoint_every)
    except Interrupted:
        state, reason = "stopped", "interrupted"
    except Exception as problem:
        reason = f"{type(problem).__name__}: {problem}"
        raise
    finally:
        if training is not None:
            training.close()
        verifier.close()
        for sink in sinks:
            sink.close(state, reason)
        leave()
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
        asked = any(isinstance(sink, Collector) and sink.run.should_stop for sink in sinks)
        if float(training.world.sum(torch.tensor(float(asked), device=training.device))):
            return "stopped", "asked to stop"
    return "finished", None


def _announce(config: Config, fault: Fault | None, step: int, sinks: list[Sink]) -> None:
    """Tell about a planned change of settings, as a user would. A fault is not announced."""
    if fault is not None and fault.announced and step == fault.at_step:
        for sink in sinks:
            sink.event("regime", step, dict(fault.patch))


def _check_shared(config: Config, world: World) -> None:
    """What a distributed run cannot do. Raises SettingError."""
    if config.actor:
        raise SettingError("actor=true runs on one rank; several ranks sample for themselves")
    if config.prompts % world.size:
        raise SettingError(f"prompts={config.prompts} cannot be shared evenly by {world.size} ranks")
    if config.rule.advantage == "gae" and config.value != "head":
        raise SettingError(f"value={config.value} learns on one rank; several ranks need value=head")
    if not config.sharded:
        raise SettingError("several ranks need sharded=true")


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
