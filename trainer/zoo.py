"""A labelled corpus of healthy, faulty and control runs, forked from shared beginnings: rows, manifest.json, labels.json and a table."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from monitor.wire import read_number
from trainer.damage import BAND_ROWS, WINDOW, damage_step, fall_row, first_signals, halved_row, mean_at
from trainer.forks import Beginnings, Rows, shared_rows
from trainer.output import Jsonl, declared
from trainer.plan import Spec, manifest
from trainer.presets import Preset
from trainer.training import Row
from trainer.verifier import Verifier

AFTER_DAMAGE = 8
"""Rows that are kept after the damage was plain: what follows teaches nothing new."""


@dataclass(slots=True)
class Case:
    """One run of the corpus. ``steps`` are the rows' steps; ``damage`` is the row at which the cost is plain, ``halved`` the one at which the
    configured task reward has halved, ``signals`` the metrics that left their band first. The first ``shared`` rows are those of an earlier run."""

    spec: Spec
    preset: Preset
    rows: Rows
    steps: list[int]
    damage: int | None = None
    halved: int | None = None
    signals: list[tuple[str, int]] = field(default_factory=list)
    shared: int = 0

    @property
    def at_step(self) -> int | None:
        return self.preset.fault.at_step if self.preset.fault else None


def run_case(beginnings: Beginnings, spec: Spec, control: Case | None) -> Case:
    """Run ``spec`` from the shared beginning to its end, or until the damage has been plain for some steps."""
    preset = spec.load()
    training, rows = beginnings.fork(spec, preset)
    case = Case(spec, preset, rows, list(range(len(rows))))
    lost_at, back = spec.resume or (None, None)
    kept: dict[str, Any] = {}
    try:
        while training.step < preset.config.steps:
            if training.step == back and not kept:
                kept = training.state()
            if training.step == lost_at and kept:
                training.restore(kept)
                lost_at = None
            case.steps.append(training.step)
            rows.append(training.advance().values)
            if preset.faulty and (damage := damage_of(case, control)) is not None and len(rows) > damage + AFTER_DAMAGE:
                break
    finally:
        training.close()
    return case


def damage_of(case: Case, control: Case | None) -> int | None:
    """The row at which the cost of the run's fault is plain. A run that should be well is asked whether its audit reward ever halved; one that
    announced a change, whether it did so after that."""
    fault = case.preset.fault
    if fault is not None and case.preset.faulty:
        return damage_step(case.rows, fault.at_step, fault.damage, control.rows if control else None, fault.for_steps)
    settled = BAND_ROWS if fault is None else fault.at_step + WINDOW * fault.announced
    return halved_row(case.rows, settled, "reward.audit.mean")


def hurt(case: Case) -> bool:
    """Whether a run that should be well was not: before or after a change that it announced."""
    fault = case.preset.fault
    change = sum(step < fault.at_step for step in case.steps) if fault is not None and fault.announced else 0
    return case.damage is not None or any(fall_row(part) is not None for part in (case.rows[:change], case.rows[change:]))


def build(specs: Sequence[Spec], out: Path, tell: Callable[[str], None] = print) -> list[Case]:
    """Write manifest.json, then make every run of ``specs``: its rows, its entry in labels.json. Returns the judged cases."""
    out.mkdir(parents=True, exist_ok=True)
    labels = _read(out / "labels.json")
    _write(out / "manifest.json", _read(out / "manifest.json") | manifest(specs))
    done = {spec.file: case for spec in specs if (case := kept_case(out, labels, spec)) is not None}
    shared = shared_rows(specs)
    verifier = Verifier()
    beginnings = Beginnings(verifier, [spec for spec in specs if spec.file not in done])
    try:
        for number, spec in enumerate(specs, 1):
            started = time.process_time()
            control = done.get(replace(spec, name=spec.control).file) if spec.control else None
            if spec.file not in done:
                done[spec.file] = run_case(beginnings, spec, control)
                write(done[spec.file], out)
            case = done[spec.file]
            judge(case, control)
            case.shared = shared[spec.file]
            labels[spec.file] = label(case)
            _write(out / "labels.json", labels)
            tell(f"{number}/{len(specs)} {spec.name} seed {spec.seed}: {_verdict(case)}, {time.process_time() - started:.0f} CPU s")
    finally:
        verifier.close()
    return [done[spec.file] for spec in specs]


def judge(case: Case, control: Case | None) -> None:
    """Fill in when the damage was plain and which metrics moved first."""
    case.damage = damage_of(case, control)
    if case.preset.faulty and case.at_step is not None:
        case.halved = halved_row(case.rows, case.at_step)
        before = case.rows[max(0, case.at_step - BAND_ROWS) : case.at_step]
        case.signals = first_signals(case.rows, case.at_step, before if len(before) >= 5 else (control.rows if control else case.rows)[:BAND_ROWS])


def write(case: Case, out: Path) -> None:
    """The run's file, as the run itself would have written it."""
    fault = case.preset.fault
    partial = out / f"{case.spec.file}.partial"
    sink = Jsonl(partial, {"run": case.spec.file, **declared(case.preset.config, case.preset.name, case.preset.fault)})
    for step, values in zip(case.steps, case.rows, strict=True):
        if fault is not None and fault.announced and step == fault.at_step:
            sink.event("regime", step, fault.patch)
        sink.row(Row(step, values))
    sink.close("finished", None)
    partial.replace(out / case.spec.file)


def label(case: Case) -> dict[str, Any]:
    """An entry of labels.json: outcome ``healthy``, ``fault:NAME``, ``flat`` (a fault that cost nothing) or ``unclear`` (a run that should be well
    and lost a third of its success, for longer than a bad batch), damage row, injection step, what changed, and the settings that made the run."""
    preset = case.preset
    healthy = not preset.faulty
    outcome = ("unclear" if hurt(case) else "healthy") if healthy else (f"fault:{preset.name}" if case.damage is not None else "flat")
    return {
        "outcome": outcome,
        "damage_row": None if healthy else case.damage,
        "halved_row": case.halved,
        "shared_rows": case.shared,
        "fault_injected_at_step": case.at_step if preset.faulty else None,
        "algorithm": preset.config.algorithm,
        "changed_at_injection": dict(preset.fault.patch) if preset.fault else {},
        "first_signals": [{"metric": name, "step": step} for name, step in case.signals],
        "made_by": _made_by(case.spec),
    }


def _made_by(spec: Spec) -> dict[str, Any]:
    """What decides a run's rows, but for its seed, as JSON holds it."""
    preset = spec.load()
    settings = {key: value for key, value in asdict(preset.config).items() if key != "seed"}
    fault = {"at_step": preset.fault.at_step, "for_steps": preset.fault.for_steps, "patch": dict(preset.fault.patch)} if preset.fault else {}
    made: dict[str, Any] = json.loads(json.dumps(settings | {"fault": fault} | ({"resume": spec.resume} if spec.resume else {})))
    return made


def _read(path: Path) -> dict[str, Any]:
    try:
        known: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return known


def _write(path: Path, tree: Mapping[str, Any]) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(tree, indent=1) + "\n")
    partial.replace(path)


def kept_case(out: Path, labels: Mapping[str, Any], spec: Spec) -> Case | None:
    """The case from an earlier build in the same folder, if the same settings made it."""
    path = out / spec.file
    if labels.get(spec.file, {}).get("made_by") != _made_by(spec) or not path.exists():
        return None
    case = Case(spec, spec.load(), [], [])
    for line in path.read_text().splitlines():
        tree = json.loads(line)
        if "step" in tree and "event" not in tree:
            case.steps.append(tree.pop("step"))
            case.rows.append({key: found for key, value in tree.items() if (found := read_number(value)) is not None})
    return case


def _verdict(case: Case) -> str:
    audit = f"audit {mean_at(case.rows, 'reward.audit.mean', 5):.2f} -> {mean_at(case.rows, 'reward.audit.mean', len(case.rows)):.2f}"
    return f"{len(case.rows)} rows, {audit}, {'no damage' if case.damage is None else f'damage at {case.damage}'}"


def table(cases: Sequence[Case]) -> str:
    """A Markdown table of the faults with their controls, and what share behaved as it should."""
    by_name: dict[str, list[Case]] = {}
    for case in cases:
        by_name.setdefault(case.spec.name, []).append(case)
    lines = [
        "| fault | from step | damage at step, by seed | audit before -> end | first metrics to leave their band | control, damaged |",
        "|---|---|---|---|---|---|",
    ]
    for name, group in sorted(by_name.items()):
        preset = group[0].preset
        if preset.faulty and preset.fault is not None:
            control = by_name.get(group[0].spec.control or "", [])
            lost = f"{group[0].spec.control}: {sum(c.damage is not None for c in control)} of {len(control)}" if control else "-"
            name = name if preset.kind == "fault" else f"{name} (study)"
            steps = ", ".join("-" if c.damage is None else str(c.damage) for c in group)
            lines.append(f"| {name} | {preset.fault.at_step} | {steps} | {_audit(group)} | {_signals(group)} | {lost} |")
    faults = [c for c in cases if c.preset.kind == "fault"]
    well = [c for c in cases if not c.preset.faulty]
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
