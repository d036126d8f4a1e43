"""``docs/detectors.md`` from the registry; written by ``python -m docs.generate``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from monitor.detect import fold, outcome, rules
from monitor.detect.cause import CANDIDATES
from monitor.detect.contract import Detector, Row
from monitor.detect.examples import FIRES, QUIET, Example
from monitor.detect.registry import DETECTORS
from monitor.detect.strain import CHANNELS, GAP, Channel, Z
from monitor.metrics import ORGANS

BLOCKS = "▁▂▃▄▅▆▇█"
INTRODUCTION = """# Detectors

Generated from `monitor/detect`; do not edit. A detector is a pure fold over the rows of one run. It reports that its condition holds on a row;
what becomes of that (one alert, its escalation, its end) is the business of `monitor/alerts`.

**Severities.** *information* and *watch* are shown and never sent unless asked for; *warning* and *critical* are alarms.

**Rows, not steps.** Baselines are the latest 64 rows of the run itself without the newest {gap}; three rows are enough to begin with, and limits
are wider while a baseline is short. A log that holds every tenth step is judged as readily as one that holds every step. No level is compared
between runs, algorithms or model families: what is normal for GSPO's clipping, for PPO's gradients or for a mixture of experts is whatever
this run does.

**Two gates.** One part of the policy out of its range is common in healthy runs; two at once are not. A *channel* below is strained when its
value lies {z:g} robust noise units and the given change beyond where the baseline was heading, and beyond three in four of the baseline's rows.
Rules that watch a channel give a *watch* for their own strain on 3 of 5 rows, and a *warning* when another group, or the task reward, moves
too, and

- it holds on 2 of 3 rows (3 of 5 in batches under {few} rollouts); or, in batches that are not so small,
- on one row it lies beyond {extreme:g} noise units or beside a falling reward, and is not among {spiky}, which
  spike by themselves; or
- on one row two others join, one lies beyond {sure:g} noise units, and the reward falls or the policy leaps to {leap:g} times normal. Where
  the KL of the update is logged a leap needs {small:g} of it: clipping keeps odd batches harmless.

They are *critical* once the task reward has fallen. Strain in {welcome} is no fault while the task reward rises. The first three rows after
a resume raise no such alarm.

**One sign.** When a few rollouts ramble, or a batch is hard, strains in {rambling} come together, and it costs some reward:
with no other group, and less than {deep:.0%} of the reward's level lost, they are one sign, however many they are. Nor are {batch}
another group while none of it is beyond {extreme:g} noise units and the KL of the update is under {small:g}: they tell how a batch was and not what
it did. One sign is an alarm only when it lasts for 4 of 5 rows and entropy or mean length is 1 + {far:g} / sqrt(rollouts) times normal
({far_usual:g} at {unsaid} rollouts, or where the size of the batch is not logged), or the median length {median:g} times.

**Noise of the reward** is the root mean square of successive differences, widened while rows are few, never less than the sampling error of the
batch (`batch.sequences`) or a tenth of the rewards' spread (`group.reward_std`, `reward.total.std`).

**Regimes.** Announced changes (`regime` events: length or curriculum stage, reward weights, batch size, temperature) begin new baselines.

**Declared signal.** A run that learns from a teacher or an environment loss is not judged by its reward, but for a fall of it.

**Thresholds** in the tables can be set for all runs, a project or a run in `vitals.toml`, under `[detectors.ID]`.
"""
LATER = """## What scalar rows cannot show

Surges of words, tools and domains, exploit signatures and canaries are read from rollouts and judged elsewhere. A run that stops arriving is judged
by the worker's clock: late after five times its own median interval, stalled after ten, never under two minutes.
"""


def sparkline(values: Iterable[float | None], width: int = 35) -> str:
    """The values as ``width`` blocks: the mean of each bin, a gap for bins without a finite value."""
    points = list(values)
    size = max(1, math.ceil(len(points) / width))
    bins = [[v for v in points[i : i + size] if v is not None and math.isfinite(v)] for i in range(0, len(points), size)]
    means = [sum(b) / len(b) if b else None for b in bins]
    known = [m for m in means if m is not None]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    span = high - low or 1.0
    return "".join(" " if m is None else BLOCKS[min(7, int(8 * (m - low) / span))] for m in means)


def _spoken(detector: Detector, example: Example) -> str:
    """What the detector says on the example, in one line."""
    state, said = fold.initial(), []
    for i, values in enumerate(example.rows()):
        state, findings = fold.observe(state, Row(i, i, values), example.context)
        said += [(finding.severity, i) for finding in findings if finding.detector == detector.id]
    first: dict[str, int] = {}
    for severity, i in said:
        first.setdefault(severity, i)
    return ", ".join(f"{severity} at row {i}" for severity, i in first.items()) or "silent"


def _example(detector: Detector, example: Example, kind: str) -> str:
    drawn = sparkline(row.get(example.shown) for row in example.rows())
    return f"- {kind}: {example.says} (from row {example.at}): {_spoken(detector, example)}.\n  `{example.shown}` `{drawn}`"


def _channel(channel: Channel) -> str:
    change = f"{'x' if channel.sign > 0 else '/'} {channel.change:g}" if channel.scale == "log" else f"{channel.change:g}"
    meaning = {"log": "factor", "linear": "difference", "offset": "log distance from 1"}[channel.scale]
    ignored = f"below {channel.soft:g} counts as 0" if channel.soft else ""
    return f"| {channel.group} | `{channel.metric}` | {'up' if channel.sign > 0 else 'down'} | {change} | {meaning} | {ignored} |"


def _section(detector: Detector) -> str:
    needs = "; ".join(" or ".join(name if name in ("task", "aux") else f"`{name}`" for name in choice) for choice in detector.needs)
    lines = [
        f"### {detector.title} (`{detector.id}`)",
        "",
        detector.rule,
        "",
        f"- Rule: {detector.formula}",
        f"- Needs: {needs}",
        f"- Why: {detector.source}",
        f"- First remedy: {detector.remedy}",
        _example(detector, FIRES[detector.id], "Speaks"),
        _example(detector, QUIET[detector.id], "Raises no alarm"),
    ]
    if detector.parameters:
        lines += ["", "| threshold | default | unit | meaning |", "|---|---|---|---|"]
        lines += [f"| `{p.name}` | {p.default:g} | {p.unit} | {p.meaning} |" for p in detector.parameters]
    return "\n".join(lines)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + f" and {names[-1]}"


def render() -> str:
    """The whole document."""
    parts = [
        INTRODUCTION.format(
            gap=GAP,
            z=Z,
            extreme=rules.EXTREME,
            sure=rules.SURE,
            leap=rules.LEAP,
            small=rules.SMALL_UPDATE,
            few=rules.FEW_SEQUENCES,
            deep=outcome.DEEP,
            far=rules.FAR,
            unsaid=rules.UNSAID_SEQUENCES,
            far_usual=1 + rules.FAR / math.sqrt(rules.UNSAID_SEQUENCES),
            median=rules.FAR_MEDIAN,
            rambling=_listed(rules.RAMBLING),
            batch=_listed(rules.BATCH),
            spiky=_listed(rules.SPIKY),
            welcome=_listed(rules.WELCOME),
        )
    ]
    parts.append(
        "\n".join(
            [
                "## Channels",
                "",
                "| group | metric | harmful | least change | scale | |",
                "|---|---|---|---|---|---|",
                *(_channel(c) for c in CHANNELS),
            ]
        )
    )
    for organ in ORGANS:
        own = [d for d in DETECTORS if d.organ == organ]
        if own:
            parts.append(f"## {organ.capitalize()}\n\n" + "\n\n".join(_section(d) for d in own))
    causes = [f"| {c.name} | {c.sentence} | {c.remedy} | {c.check} |" for c in CANDIDATES]
    parts.append("\n".join(["## Named causes", "", "| cause | meaning | first | would prove it wrong |", "|---|---|---|---|", *causes]))
    parts.append(LATER)
    return "\n\n".join(part.strip() for part in parts) + "\n"
