"""Checkpoints on disk, written whole or not at all."""

from __future__ import annotations

import pickle
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from trainer.config import Config, SettingError
from trainer.training import Training

FREE = {"steps"}
"""Settings that may differ between the run that wrote a checkpoint and the one that continues it."""


def save(training: Training, path: Path) -> None:
    """Write the run's state to ``path``; a crash in between leaves the older file."""
    state = training.state()
    if training.world.rank == 0:
        partial = path.with_name(path.name + ".partial")
        torch.save({"config": _plain(training.config), "state": state}, partial)
        partial.replace(path)


def load(training: Training, path: Path) -> None:
    """Continue ``training`` from ``path``. Raises SettingError when the file is no checkpoint of the same settings."""
    try:
        saved: dict[str, Any] = torch.load(path, weights_only=True, map_location=training.device)
        config, state = saved["config"], saved["state"]
    except (RuntimeError, KeyError, ValueError, TypeError, EOFError, pickle.UnpicklingError) as problem:
        raise SettingError(f"{path} is not a checkpoint of this program ({type(problem).__name__})") from None
    now = _plain(training.config)
    if different := [name for name in now if name not in FREE and config.get(name) != now[name]]:
        name = different[0]
        raise SettingError(f"{path} was written with {name}={config.get(name)!r}, this run has {now[name]!r}; continue with the same settings")
    training.restore(state)


def _plain(config: Config) -> dict[str, Any]:
    """The settings as types that a checkpoint can hold: tables as dictionaries, tuples as lists."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(config).items()}
