"""Which runs a corpus holds: fixed before the first of them is made, and written down beside them as ``manifest.json``.

A plan file is TOML, one table per kind of run::

    [[run]]
    preset = "lr-too-high"            # or several: ["healthy", "sgd"], or "all"
    seeds = [71, 72]                  # default: those of --seeds
    name = "lr-too-high-small"        # default: the preset's; names the files
    set = { lr = 3.5e-4, "fault.at_step" = 18 }
    resume = [30, 25]                 # lost at step 30, continued from step 25
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trainer import presets
from trainer.config import SettingError, one_of
from trainer.presets import Preset

ENTRIES = ("preset", "seeds", "name", "set", "resume")


@dataclass(frozen=True, slots=True)
class Spec:
    """One run: ``settings`` on top of the preset, ``control`` the name of the run of the same seed that its damage is measured by."""

    name: str
    preset: str
    seed: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    resume: tuple[int, int] | None = None
    control: str | None = None

    @property
    def file(self) -> str:
        return f"{self.name}-seed{self.seed}.jsonl"

    def load(self) -> Preset:
        """The preset with everything that the plan changes."""
        return presets.load(self.preset, {**self.settings, "seed": self.seed})


def simple(names: Sequence[str], seeds: Sequence[int], settings: Mapping[str, Any]) -> list[Spec]:
    """Every preset of ``names`` with every seed, all with the same ``settings`` (those of the fault where there is one), and their controls."""
    plain = {key: value for key, value in settings.items() if not key.startswith("fault.")}
    return complete(Spec(name, name, seed, settings if presets.load(name).fault else plain) for seed in seeds for name in names)


def read(path: Path, seeds: Sequence[int], settings: Mapping[str, Any]) -> list[Spec]:
    """The runs of a plan file, ``settings`` below its own, and their controls. Raises SettingError."""
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise SettingError(f"{path} is no TOML: {problem}") from None
    entries = document.get("run")
    if set(document) != {"run"} or not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise SettingError(f"{path} must hold [[run]] tables and nothing else")
    specs = [spec for entry in entries for spec in _specs(entry, seeds, settings)]
    return complete(sorted(specs, key=lambda spec: spec.seed))


def _specs(entry: Mapping[str, Any], seeds: Sequence[int], settings: Mapping[str, Any]) -> list[Spec]:
    for key in entry:
        one_of("entry of [[run]]", key, ENTRIES)
    named = entry.get("preset", "healthy")
    wanted = presets.names() if named == "all" else named if isinstance(named, list) else [named]
    if len(wanted) != 1 and "name" in entry:
        raise SettingError(f"name = {entry['name']!r} cannot name the runs of {len(wanted)} presets")
    resume = entry.get("resume")
    if resume is not None and not (isinstance(resume, list) and len(resume) == 2 and all(type(step) is int for step in resume)):
        raise SettingError(f"resume takes two steps, for example [30, 25], not {resume!r}")
    if resume is not None and not 0 <= resume[1] < resume[0]:
        raise SettingError(f"resume goes back to an earlier step, which {resume} does not")
    own = entry.get("seeds", list(seeds))
    if not isinstance(own, list) or not all(type(seed) is int for seed in own):
        raise SettingError(f"seeds must be whole numbers, not {own!r}")
    back = None if resume is None else (resume[0], resume[1])
    return [Spec(entry.get("name", name), name, seed, {**settings, **entry.get("set", {})}, back) for name in wanted for seed in own]


def complete(specs: Iterable[Spec]) -> list[Spec]:
    """``specs`` with the controls that they are measured by, each control before its fault. Raises SettingError when two runs share a name.

    A control has its fault's settings, and of what is changed at the fault only that in which the two do not differ.
    """
    ordered: dict[str, Spec] = {}
    asked = list(specs)
    known = {(spec.preset, spec.seed, repr(sorted(spec.settings.items()))): spec for spec in reversed(asked) if spec.resume is None}
    for spec in asked:
        preset = spec.load()
        if preset.fault is not None and preset.fault.control:
            settings = _of_control(preset.fault.control, spec)
            key = (preset.fault.control, spec.seed, repr(sorted(settings.items())))
            name = preset.fault.control if spec.name == spec.preset else f"{preset.fault.control}-for-{spec.name}"
            control = known.setdefault(key, Spec(name, preset.fault.control, spec.seed, settings))
            control.load()
            _add(ordered, control)
            spec = replace(spec, control=control.name)
        _add(ordered, spec)
    return list(ordered.values())


def _add(ordered: dict[str, Spec], spec: Spec) -> None:
    if replace(ordered.setdefault(spec.file, spec), control=spec.control) != spec:
        raise SettingError(f"two different runs are called {spec.name} with seed {spec.seed}: give one of them a name")


def _of_control(name: str, spec: Spec) -> dict[str, Any]:
    own, faulty = presets.load(name).fault, presets.load(spec.preset).fault
    assert faulty is not None
    shared = set() if own is None else {f"fault.patch.{key}" for key, value in own.patch.items() if faulty.patch.get(key) == value}
    if own is not None:
        shared |= {"fault.at_step", "fault.for_steps"}
    return {key: value for key, value in spec.settings.items() if not key.startswith("fault.") or key in shared}


def manifest(specs: Iterable[Spec]) -> dict[str, Any]:
    """What will be run, as JSON: file name -> preset, seed, settings, resume, control."""
    runs = {}
    for spec in specs:
        told = {"preset": spec.preset, "seed": spec.seed, "settings": dict(spec.settings), "resume": spec.resume, "control": spec.control}
        runs[spec.file] = {key: value for key, value in told.items() if value not in (None, {})}
    plain: dict[str, Any] = json.loads(json.dumps(runs))
    return plain
