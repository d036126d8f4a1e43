"""A diagnosis as one HTML file that needs no network and no script: verdict, organs, findings, and every judged series as a small chart."""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from monitor.cli.curves import Curve
from monitor.cli.offline import Diagnosis, Entry, worst_of
from monitor.cli.report_text import number
from monitor.detect.words import counted
from monitor.metrics import ORGANS, describe

WIDTH, HEIGHT, LEFT, TOP = 284, 78, 44, 6
BELOW = 16
SILENT_UNITS = ("-", "fraction", "reward", "ratio", "loss")
LOG_SPAN = 50.0
"""A positive series that spans more than this ratio is drawn on a logarithmic axis where the catalogue allows it."""

STYLE = """
:root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--ink:#1b1f27;--dim:#5d6675;--rule:#dfe3ea;--line:#2563c9;--band:#2563c933;
--critical:#c62828;--warning:#a15c00;--watch:#1d6fa5;--healthy:#1c7a4a;--shade-critical:#c6282822;--shade-warning:#d9860022}
@media (prefers-color-scheme:dark){:root{--bg:#15181d;--card:#1e2229;--ink:#e6e9ee;--dim:#9aa4b2;--rule:#333944;--line:#6ea8fe;--band:#6ea8fe33;
--critical:#ff8a80;--warning:#ffc266;--watch:#7cc4f0;--healthy:#6fd39b;--shade-critical:#ff525233;--shade-warning:#ffb74d2b}}
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1180px;margin:0 auto;padding:24px 16px 48px}h1{font-size:22px;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:17px;margin:32px 0 10px}h3{font-size:15px;margin:0}p{margin:4px 0}.dim{color:var(--dim)}
.card{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:14px 16px;margin:10px 0}
.state{font-weight:650}.critical{color:var(--critical)}.warning{color:var(--warning)}.watch,.information{color:var(--watch)}
.healthy,.solved{color:var(--healthy)}.grid{display:grid;gap:10px;grid-template-columns:repeat(auto-fill,minmax(min(320px,100%),1fr))}
.grid .card{margin:0}dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 14px;margin:8px 0 0}dt{color:var(--dim)}
dd{margin:0;overflow-wrap:anywhere}
.head{display:flex;justify-content:space-between;gap:10px;align-items:baseline}.head .value{font-variant-numeric:tabular-nums;white-space:nowrap}
svg{display:block;width:100%;height:auto;margin-top:6px}.line{fill:none;stroke:var(--line);stroke-width:1.4;vector-effect:non-scaling-stroke}
.band{fill:var(--band)}.shade-critical{fill:var(--shade-critical)}.shade-warning{fill:var(--shade-warning)}.nan{stroke:var(--critical);stroke-width:1.4}
.base{stroke:var(--rule)}text{fill:var(--dim);font-size:9px}ul{margin:6px 0;padding-left:20px}.follow{list-style:none;padding:0;margin-top:12px}
.follow li{border-top:1px solid var(--rule);padding:8px 0 2px}code{overflow-wrap:anywhere}
@media (max-width:560px){dl{grid-template-columns:1fr}dt{margin-top:6px}}
"""


def _e(text: object) -> str:
    return html.escape(str(text))


def _tick(value: float) -> str:
    """A number short enough for the margin of a chart."""
    return f"{value:.1e}" if value and not 1e-3 <= abs(value) < 1e5 else f"{value:.4g}"


def _scale(curve: Curve, logarithmic: bool) -> tuple[float, float, bool]:
    """Lowest and highest value drawn, and whether the axis is logarithmic."""
    low = min(bucket[0] for bucket in curve.buckets.values())
    high = max(bucket[1] for bucket in curve.buckets.values())
    return low, high, logarithmic and low > 0 and high / low > LOG_SPAN


def _spans(name: str, found: Diagnosis, severity: str) -> list[tuple[int, int]]:
    """Disjoint stretches of rows in which an alert about ``name`` stood at ``severity``."""
    stretches = []
    for entries in (alert for members in found.incidents() for alert in members):
        for entry, following in itertools.zip_longest(entries, entries[1:]):
            end = entry.resolved_row if following is None else following.row
            if entry.finding.severity == severity and entry.finding.metric == name:
                stretches.append((entry.row, found.rows - 1 if end is None else end))
    merged: list[tuple[int, int]] = []
    for start, end in sorted(stretches):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _shades(name: str, found: Diagnosis) -> Iterator[str]:
    for severity in ("warning", "critical"):
        for start, end in _spans(name, found, severity):
            x, width = (WIDTH * row / max(found.rows - 1, 1) for row in (start, end - start))
            yield f'<rect class="shade-{severity}" x="{LEFT + x:.1f}" y="{TOP}" width="{max(width, 1.5):.1f}" height="{HEIGHT}"/>'


def chart(name: str, curve: Curve, found: Diagnosis) -> str:
    """One series as inline SVG: range band and line, alarms shaded, values that were not finite as marks on the upper edge."""
    parts = list(_shades(name, found))
    span = max(found.rows - 1, 1)

    def across(place: float) -> float:
        return LEFT + WIDTH * min(place * curve.stride / span, 1.0)

    described = "no finite value"
    if curve.buckets:
        low, high, logarithmic = _scale(curve, describe(name).log)
        described = f"from {number(low)} to {number(high)}, last {number(curve.last)}{', logarithmic axis' if logarithmic else ''}"

        def up(value: float) -> float:
            value, bottom, top = (math.log(value), math.log(low), math.log(high)) if logarithmic else (value, low, high)
            share = 0.5 if top <= bottom else (value - bottom) / (top - bottom)
            return TOP + HEIGHT * (1 - share)

        places = sorted(curve.buckets)
        points = [(across(place), *map(up, curve.buckets[place])) for place in places]
        if curve.stride > 1:
            upper = " ".join(f"{x:.1f},{high_:.1f}" for x, _, high_, _ in points)
            lower = " ".join(f"{x:.1f},{low_:.1f}" for x, low_, _, _ in reversed(points))
            parts.append(f'<polygon class="band" points="{upper} {lower}"/>')
        parts.append(f'<polyline class="line" points="{" ".join(f"{x:.1f},{last:.1f}" for x, _, _, last in points)}"/>')
        parts.append(f'<text x="{LEFT - 5}" y="{TOP + 7}" text-anchor="end">{_tick(high)}</text>')
        parts.append(f'<text x="{LEFT - 5}" y="{TOP + HEIGHT}" text-anchor="end">{_tick(low)}</text>')
    parts += [f'<path class="nan" d="M{across(place):.1f} {TOP}v8"/>' for place in sorted(curve.broken)]
    parts.append(f'<path class="base" d="M{LEFT} {TOP + HEIGHT}h{WIDTH}"/>')
    middle = "logarithmic" if curve.buckets and _scale(curve, describe(name).log)[2] else ""
    for x, anchor, text in ((LEFT, "start", "row 0"), (LEFT + WIDTH / 2, "middle", middle), (LEFT + WIDTH, "end", f"row {max(found.rows - 1, 0)}")):
        parts.append(f'<text x="{x}" y="{TOP + HEIGHT + 12}" text-anchor="{anchor}">{text}</text>')
    box = f"0 0 {WIDTH + LEFT + 4} {HEIGHT + TOP + BELOW}"
    return f'<svg viewBox="{box}" role="img" aria-label="{_e(name)}: {_e(described)}">{"".join(parts)}</svg>'


def _pairs(pairs: Iterable[tuple[str, str]]) -> str:
    return "<dl>" + "".join(f"<dt>{_e(name)}</dt><dd>{_e(text)}</dd>" for name, text in pairs if text) + "</dl>"


def _life(entries: Sequence[Entry]) -> str:
    """The rows at which one alert changed."""
    steps = [f"row {entry.row} (step {entry.finding.step}) {entry.finding.severity}" for entry in entries]
    return ", ".join(steps) + ("" if entries[-1].resolved_row is None else f", resolved at row {entries[-1].resolved_row}")


def _heading(entries: Sequence[Entry]) -> str:
    worst = worst_of(entries).finding
    title = f'<h3><span class="state {_e(worst.severity)}">{_e(worst.severity)}</span> {_e(worst.title)}</h3>'
    follows = f"; follows from {entries[-1].held_by}" if entries[-1].held_by else ""
    return f'<div class="head">{title}<span class="dim">{_e(worst.detector)}</span></div><p class="dim">{_e(_life(entries) + follows)}</p>'


def _incident(members: Sequence[Sequence[Entry]]) -> str:
    """One card: the first mover with all that is known of it, and what followed."""
    found = worst_of(members[0]).finding
    facts = [
        ("evidence", found.evidence),
        ("cause", found.cause),
        ("do first", found.advice),
        ("not so if", found.refutation),
        ("since", "" if found.since_step is None else f"step {found.since_step}"),
        ("moved", ", then ".join(found.moved)),
    ]
    rest = "".join(f"<li>{_heading(entries)}</li>" for entries in members[1:])
    return f'<div class="card">{_heading(members[0])}{_pairs(facts)}{f"<ul class=follow>{rest}</ul>" if rest else ""}</div>'


def _charts(found: Diagnosis, series: Mapping[str, Curve]) -> Iterator[str]:
    organs = {name: describe(name).organ for name in series}
    organs.update(dict.fromkeys((found.context.task, *found.context.aux), "reward"))
    for organ in ORGANS:
        names = sorted(name for name in series if organs.get(name) == organ)
        if not names:
            continue
        yield f"<h2>{_e(organ)}</h2>" + ('<p class="dim">Logged by the run, not judged.</p>' if organ == "custom" else "") + '<div class="grid">'
        for name in names:
            unit = describe(name).unit
            value = f"{number(series[name].last)}{'' if unit in SILENT_UNITS else f' {unit}'}"
            head = f'<div class="head"><h3><code>{_e(name)}</code></h3><span class="value">{_e(value)}</span></div>'
            yield f'<div class="card">{head}{chart(name, series[name], found)}</div>'
        yield "</div>"


def _items(sentences: Iterable[str]) -> str:
    items = "".join(f"<li>{_e(sentence)}</li>" for sentence in sentences)
    return f"<ul>{items}</ul>" if items else ""


def _listed(title: str, sentences: Sequence[str]) -> str:
    return f"<h2>{_e(title)}</h2>{_items(sentences)}" if sentences else ""


def render(found: Diagnosis, series: Mapping[str, Curve]) -> str:
    """The page. ``series`` are the curves of the same walk over the log."""
    said = found.verdict
    steps = "" if found.first_step is None else f", steps {found.first_step} to {found.last_step}"
    facts = [
        ("trainer", found.framework),
        ("log", f"{found.format}, {counted(found.rows)}{steps}"),
        ("task reward", found.context.task),
        ("auxiliary", ", ".join(found.aux) or "none"),
        ("rewards", found.roles),
    ]
    organs = [(name, part) for name, part in said.organs.items()]
    body = [
        f"<h1>{_e(found.source)}</h1>",
        f'<div class="card"><p class="state {_e(said.state)}">{_e(said.state)}</p><p>{_e(said.sentence)}</p>',
        f"{_items(said.reasons)}{_pairs(facts)}</div>",
        '<h2>Organs</h2><div class="grid">' if organs else "",
        *(
            f'<div class="card"><div class="head"><h3>{_e(name)}</h3><span class="state {_e(part.state)}">{_e(part.state)}</span></div>'
            f"<p>{_e(part.sentence)}</p></div>"
            for name, part in organs
        ),
        "</div>" if organs else "",
        f"<h2>Findings</h2>{''.join(map(_incident, found.incidents())) or '<p>None.</p>'}",
        *_charts(found, series),
        _listed("Cannot judge", found.cannot_judge),
        _listed("Notes on the file", found.notes),
        _listed("Names to read with care", found.caveats),
    ]
    title = _e(found.source.rsplit("/", 1)[-1])
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{title}: {_e(said.state)}</title><style>{STYLE}</style></head><body><main>{''.join(body)}</main></body></html>\n"
    )
