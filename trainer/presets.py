"""Presets: TOML files that name a run's settings and, for a fault, what changes when and what it should cost.

``base`` starts from another preset, ``[settings]`` holds entries of :class:`trainer.config.Config`, ``[fault]`` those of
:class:`trainer.faults.Fault`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.resources import files
from typing import Any

from trainer.config import Config, SettingError, changed, one_of
from trainer.faults import Fault


@dataclass(frozen=True, slots=True)
class Preset:
    """A named run. ``kind`` is healthy, control, fault, or study: a fault whose damage is the question."""

    name: str
    about: str
    config: Config
    fault: Fault | None
    kind: str = "healthy"

    @property
    def faulty(self) -> bool:
        """Whether something is meant to go wrong."""
        return self.kind in ("fault", "study")


def names() -> tuple[str, ...]:
    """Every preset, in alphabetical order."""
    return tuple(sorted(path.name.removesuffix(".toml") for path in files("trainer").joinpath("presets").iterdir() if path.name.endswith(".toml")))


def load(name: str, settings: Mapping[str, Any] | None = None) -> Preset:
    """The preset ``name`` with ``settings`` on top. Raises SettingError on an unknown name or setting.

    ``fault.at_step`` sets an entry of the fault and ``fault.patch.lr`` a setting that changes there; together they give a preset without a fault
    a change, which makes nothing of it faulty.
    """
    one_of("preset", name, names())
    document = _read(name)
    own = {key: value for key, value in (settings or {}).items() if not key.startswith("fault.")}
    config = changed(Config(), document.get("settings", {}) | own)
    change = {key.removeprefix("fault."): value for key, value in (settings or {}).items() if key not in own}
    table = _with(document.get("fault"), change)
    fault = None if table is None else _fault(table)
    if fault is not None:
        changed(config, fault.patch)
    return Preset(name, document["about"], config, fault, document.get("kind", "fault" if "fault" in document else "healthy"))


def _read(name: str) -> dict[str, Any]:
    """The document of a preset, with its bases merged in: the nearer one wins, tables are merged entry by entry."""
    document: dict[str, Any] = tomllib.loads(files("trainer").joinpath("presets", f"{name}.toml").read_text())
    if "base" not in document:
        return document
    base = _read(document.pop("base"))
    merged = {key: value for key, value in base.items() if key in ("settings", "fault")} | document
    merged["settings"] = base.get("settings", {}) | document.get("settings", {})
    if document.get("fault") is False:
        del merged["fault"]
    elif "fault" in base and "fault" in document:
        merged["fault"] = base["fault"] | document["fault"]
    return merged


def _with(table: Mapping[str, Any] | None, change: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The ``[fault]`` table with single entries changed."""
    if not change:
        return table
    table = table or {}
    patch = {key.removeprefix("patch."): value for key, value in change.items() if key.startswith("patch.")}
    plain = {key: value for key, value in change.items() if not key.startswith("patch.")}
    return {**table, **plain, "patch": {**table.get("patch", {}), **patch}}


def _fault(table: Mapping[str, Any]) -> Fault:
    known = tuple(f.name for f in fields(Fault))
    for key in table:
        if key not in known:
            raise SettingError(f"[fault] has no entry {key!r}; known are {', '.join(known)}")
    if type(table.get("at_step")) is not int or table["at_step"] < 0:
        raise SettingError(f"fault.at_step must be a step from 0 on, not {table.get('at_step')!r}")
    if table.get("for_steps") is not None and (type(table["for_steps"]) is not int or table["for_steps"] < 1):
        raise SettingError(f"fault.for_steps must be at least 1, not {table['for_steps']!r}")
    return Fault(**table)
