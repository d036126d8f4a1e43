"""A labelled corpus of healthy, faulty and control runs: one healthy prefix per seed, forked into many faults.

The fork is exact: everything random follows from (seed, step), so a fault and its control share every row up to the step at which they part.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from monitor.wire import read_number, spelled
from trainer import presets
from trainer.damage import BAND_ROWS, damage_step, first_signals, mean_at
from trainer.presets import Preset
from trainer.training import Training
from trainer.verifier import Verifier
from trainer.warmstart import warm_policy

Rows = list[dict[str, float]]
AFTER_DAMAGE = 6
"""Rows that are kept after the damage was plain: what follows teaches nothing new."""


@dataclass(slots=True)
class Case:
    """One run of the corpus. ``damage`` is the step at which the cost is plain, ``signals`` the metrics that left their band first."""

    preset: str
    seed: int
    rows: Rows
    at_step: int | None = None
    damage: int | None = None
    signals: list[tuple[str, int]] = field(default_factory=list)

    @property
    def file(self) -> str:
        return f"{self.preset}-seed{self.seed}.jsonl"


class Prefixes:
    """Healthy beginnings by setting, each run once and continued from where it was last needed."""

    def __init__(self, verifier: Verifier) -> None:
        self.verifier = verifier
        self.known: dict[str, tuple[Training, Rows, dict[int, dict[str, Any]]]] = {}

    def fork(self, preset: Preset, at_step: int) -> tuple[Training, Rows]:
        """A training of ``preset`` that stands at ``at_step``, with the rows before it."""
        key = repr(replace(preset.config, steps=1))
        training, rows, states = self.known.get(key) or (self._begin(preset), [], {})
        self.known[key] = (training, rows, states)
        states.setdefault(training.step, training.state())
        while training.step < at_step:
            rows.append(training.advance().values)
            states[training.step] = training.state()
        fork = self._begin(preset, preset)
        fork.restore(states[at_step])
        return fork, list(rows[:at_step])

    def _begin(self, preset: Preset, faulty: Preset | None = None) -> Training:
        policy = warm_policy(preset.config.warm_start, self.verifier)
        return Training(preset.config, policy, self.verifier, faulty.fault if faulty else None)


def run_case(prefixes: Prefixes, name: str, seed: int, control: Case | None) -> Case:
    """Run one preset from the shared prefix where it has a fault, to its end or until the damage has been plain for some steps."""
    preset = presets.load(name, {"seed": seed})
    at_step = preset.fault.at_step if preset.fault else None
    needs_history = preset.fault is not None and preset.fault.patch.get("lag", 0)
    training, rows = prefixes.fork(preset, 0 if at_step is None or needs_history else at_step)
    while training.step < preset.config.steps:
        rows.append(training.advance().values)
        if preset.faulty and preset.fault is not None and at_step is not None:
            damage = damage_step(rows, at_step, preset.fault.damage, control.rows if control else None, preset.fault.for_steps)
            if damage is not None and len(rows) > damage + AFTER_DAMAGE:
                break
    return Case(name, seed, rows, at_step)


def build(names: Sequence[str], seeds: Sequence[int], out: Path, tell: Callable[[str], None] = print) -> list[Case]:
    """Run every preset of ``names`` and the controls they name, write rows and labels.json to ``out``, and return the judged cases."""
    out.mkdir(parents=True, exist_ok=True)
    cases: list[Case] = []
    before = _known(out / "labels.json")
    verifier = Verifier()
    try:
        for seed in seeds:
            prefixes = Prefixes(verifier)
            done: dict[str, Case] = {}
            for name in with_controls(names):
                started = time.process_time()
                done[name] = kept_case(out, before, name, seed) or run_case(prefixes, name, seed, done.get(_control(name)))
                judge(done[name], done)
                write(done[name], out)
                cases.append(done[name])
                before |= {case.file: label(case) for case in cases}
                out.joinpath("labels.json").write_text(json.dumps(before, indent=1) + "\n")
                tell(f"{name} seed {seed}: {_verdict(done[name])}, {time.process_time() - started:.0f} CPU s")
    finally:
        verifier.close()
    return cases


def with_controls(names: Sequence[str]) -> list[str]:
    """``names`` with the controls they need, each control before the fault that is compared with it."""
    ordered: dict[str, None] = {}
    for name in names:
        preset = presets.load(name)
        if preset.fault is not None and preset.fault.control:
            ordered[preset.fault.control] = None
    return [*ordered, *(name for name in names if name not in ordered)]


def _control(name: str) -> str:
    fault = presets.load(name).fault
    return (fault.control if fault else None) or ""


def judge(case: Case, done: Mapping[str, Case]) -> None:
    """Fill in when the damage was plain and which metrics moved first."""
    preset = presets.load(case.preset)
    fault, control = preset.fault, done.get(preset.fault.control or "") if preset.fault else None
    at_step = fault.at_step if fault else BAND_ROWS
    rule = fault.damage if fault else {}
    case.damage = damage_step(case.rows, at_step, rule, control.rows if control else None, fault.for_steps if fault else None)
    if preset.faulty:
        before = case.rows[max(0, at_step - BAND_ROWS) : at_step]
        case.signals = first_signals(case.rows, at_step, before if len(before) >= 5 else (control.rows if control else case.rows)[:BAND_ROWS])


def write(case: Case, out: Path) -> None:
    """One JSON object per row."""
    with out.joinpath(case.file).open("w") as file:
        for step, row in enumerate(case.rows):
            file.write(json.dumps(spelled({"step": step, **row})) + "\n")


def label(case: Case) -> dict[str, Any]:
    """An entry of labels.json: outcome ``healthy``, ``fault:NAME``, ``flat`` (a fault that cost nothing) or ``unclear`` (a control that was hurt),
    damage row, injection step, what changed, and the settings that made the run."""
    preset = presets.load(case.preset)
    healthy = not preset.faulty
    outcome = ("healthy" if case.damage is None else "unclear") if healthy else (f"fault:{case.preset}" if case.damage is not None else "flat")
    return {
        "outcome": outcome,
        "damage_row": None if healthy else case.damage,
        "fault_injected_at_step": case.at_step if preset.faulty else None,
        "algorithm": preset.config.algorithm,
        "changed_at_injection": dict(preset.fault.patch) if preset.fault else {},
        "first_signals": [{"metric": name, "step": step} for name, step in case.signals],
        "made_by": _made_by(preset),
    }


def _made_by(preset: Preset) -> dict[str, Any]:
    """What decides a run's rows, but for its seed, as JSON holds it."""
    settings = {key: value for key, value in asdict(preset.config).items() if key != "seed"}
    fault = {"at_step": preset.fault.at_step, "for_steps": preset.fault.for_steps, "patch": dict(preset.fault.patch)} if preset.fault else {}
    made: dict[str, Any] = json.loads(json.dumps(settings | {"fault": fault}))
    return made


def _known(path: Path) -> dict[str, Any]:
    try:
        known: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return known


def kept_case(out: Path, known: Mapping[str, Any], name: str, seed: int) -> Case | None:
    """The case from an earlier build in the same folder, if the same settings made it."""
    preset = presets.load(name, {"seed": seed})
    case = Case(name, seed, [], preset.fault.at_step if preset.fault else None)
    path = out / case.file
    if known.get(case.file, {}).get("made_by") != _made_by(preset) or not path.exists():
        return None
    for line in path.read_text().splitlines():
        values = {key: read_number(value) for key, value in json.loads(line).items() if key != "step"}
        case.rows.append({key: value for key, value in values.items() if value is not None})
    return case


def _verdict(case: Case) -> str:
    audit = f"audit {mean_at(case.rows, 'reward.audit.mean', 5):.2f} -> {mean_at(case.rows, 'reward.audit.mean', len(case.rows)):.2f}"
    return f"{audit}, {'no damage' if case.damage is None else f'damage at {case.damage}'}"


def table(cases: Sequence[Case]) -> str:
    """A Markdown table of the faults with their controls, and what share behaved as it should."""
    by_name: dict[str, list[Case]] = {}
    for case in cases:
        by_name.setdefault(case.preset, []).append(case)
    lines = [
        "| fault | from step | damage at step, by seed | audit before -> end | first metrics to leave their band | control, damaged |",
        "|---|---|---|---|---|---|",
    ]
    for name, group in sorted(by_name.items()):
        preset = presets.load(name)
        if preset.faulty and preset.fault is not None:
            control = by_name.get(preset.fault.control or "", [])
            lost = f"{preset.fault.control}: {sum(c.damage is not None for c in control)} of {len(control)}" if control else "-"
            name = name if preset.kind == "fault" else f"{name} (study)"
            steps = ", ".join("-" if c.damage is None else str(c.damage) for c in group)
            lines.append(f"| {name} | {preset.fault.at_step} | {steps} | {_audit(group)} | {_signals(group)} | {lost} |")
    faults = [c for c in cases if presets.load(c.preset).kind == "fault"]
    well = [c for c in cases if not presets.load(c.preset).faulty]
    lines += [
        "",
        f"Faults that cost what they should: {sum(c.damage is not None for c in faults)} of {len(faults)}. "
        f"Healthy runs and controls without damage: {sum(c.damage is None for c in well)} of {len(well)}. Studies are not counted.",
    ]
    return "\n".join(lines)


def _audit(group: Sequence[Case]) -> str:
    before = sum(mean_at(c.rows, "reward.audit.mean", max(5, c.at_step or 0)) for c in group) / len(group)
    after = sum(mean_at(c.rows, "reward.audit.mean", len(c.rows)) for c in group) / len(group)
    return f"{before:.2f} -> {after:.2f}"


def _signals(group: Sequence[Case]) -> str:
    """The metrics that moved first, with the mean number of steps after the fault, over the seeds that saw them."""
    seen: dict[str, list[int]] = {}
    for case in group:
        for name, step in case.signals:
            seen.setdefault(name, []).append(step - (case.at_step or 0))
    best = sorted(seen.items(), key=lambda item: (-len(item[1]), sum(item[1]) / len(item[1])))[:3]
    return ", ".join(f"{name} +{sum(steps) / len(steps):.0f}" for name, steps in best)
