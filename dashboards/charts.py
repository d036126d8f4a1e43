"""Which charts a run page shows: the catalogue's metrics, grouped where one picture says more than two, in the order of the organs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from monitor.metrics import CATALOGUE, HISTOGRAM_BY_NAME, ORGANS, describe

TITLES = {
    "reward": "Reward",
    "signal": "Learning signal",
    "policy": "Policy",
    "optimizer": "Optimizer",
    "rollout": "Completions",
    "pace": "Pace",
    "behaviour": "Behaviour",
    "custom": "Custom",
}

QUESTIONS = {
    "reward": "Is the task being learned, and not something beside it?",
    "signal": "Do groups still disagree enough to teach anything?",
    "policy": "Do the weights, the entropy and the distance to the reference stay in bounds?",
    "optimizer": "Are the steps of a sane size?",
    "rollout": "Are completions of a sane length, and do they say something new?",
    "pace": "Is it fast enough, and are the samples fresh?",
    "behaviour": "What does the policy do in its environment?",
    "custom": "Logged by the run, drawn, never judged.",
}
"""What a reader wants to know of each organ."""


@dataclass(frozen=True, slots=True)
class Line:
    """One series of a chart and what its legend calls it. ``beside`` lines get an axis of their own where their scale would flatten the others;
    ``dashed`` ones leave the line seen that they follow closely."""

    metric: str
    label: str
    beside: bool = False
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture: ``kind`` is ``lines``, ``stack`` (shares that add up to one) or ``heat`` (a histogram over steps)."""

    id: str
    organ: str
    title: str
    lines: tuple[Line, ...]
    unit: str
    help: str
    kind: str = "lines"
    log: bool = False
    low: float | None = None
    high: float | None = None
    wide: bool = False


@dataclass(frozen=True, slots=True)
class _Group:
    id: str
    organ: str
    title: str
    lines: tuple[tuple[str, str], ...]
    kind: str = "lines"
    wide: bool = False
    prefixes: tuple[str, ...] = ()


_GROUPS: tuple[_Group, ...] = (
    _Group(
        "reward-components",
        "reward",
        "Task reward against everything else",
        (
            ("reward.task.mean", "task"),
            ("reward.audit.mean", "audit"),
            ("reward.aux.mean", "auxiliary"),
            ("reward.total.mean", "total"),
        ),
        wide=True,
        prefixes=("reward.aux.",),
    ),
    _Group("reward-bounds", "reward", "Best and worst total reward", (("reward.total.max", "best"), ("reward.total.min", "worst"))),
    _Group(
        "group-outcomes",
        "signal",
        "Group outcomes",
        (("group.all_pass_frac", "all pass"), ("group.mixed_frac", "mixed"), ("group.all_fail_frac", "all fail")),
        kind="stack",
    ),
    _Group("iw", "policy", "Importance weights", (("iw.max", "largest"), ("iw.mean", "mean"), ("iw.min", "smallest"))),
    _Group("clip", "policy", "Clipped tokens", (("update.clip_frac", "all"), ("update.clip_frac_high", "above"), ("update.clip_frac_low", "below"))),
    _Group("logp-gap", "policy", "Sampler log-prob gap", (("mismatch.logp_absdiff.mean", "mean"), ("mismatch.logp_absdiff.max", "largest"))),
    _Group("ratio", "policy", "PPO ratio", (("ratio.max", "largest"), ("ratio.mean", "mean"))),
    _Group(
        "lengths",
        "rollout",
        "Completion length",
        (
            ("len.completion.mean", "mean"),
            ("len.completion.p05", "5 %"),
            ("len.completion.p50", "median"),
            ("len.completion.p95", "95 %"),
            ("len.completion.max", "longest"),
            ("len.completion.min", "shortest"),
        ),
    ),
    _Group(
        "repetition",
        "rollout",
        "Repetition",
        (("rep.adjacent_frac", "immediate"), ("rep.ngram_frac", "4-grams"), ("rep.top1_share", "commonest token")),
    ),
    _Group("staleness", "pace", "Staleness", (("stale.mean", "mean"), ("stale.max", "largest"))),
    _Group(
        "step-time",
        "pace",
        "Where the time goes",
        (("perf.step_time_s", "step"), ("perf.gen_time_s", "generation"), ("perf.train_time_s", "update")),
        prefixes=("perf.phase_s.",),
    ),
    _Group("batch", "pace", "Batch", (("batch.sequences", "rollouts"), ("batch.groups", "groups"))),
)

_ORDER = {metric.name: place for place, metric in enumerate(CATALOGUE)}
_MAX_LINES = 8


def charts_for(names: Sequence[str], histograms: Sequence[str] = (), *, task: str | None = None, aux: Sequence[str] = ()) -> list[Chart]:
    """The charts of a run that logs ``names``: every metric in one chart, none without a metric. ``task`` and ``aux`` name the run's own rewards."""
    left = dict.fromkeys(names)
    charts: list[Chart] = []
    for group in _GROUPS:
        lines = [Line(metric, label) for metric, label in group.lines if metric in left]
        if group.id == "reward-components":
            lines = _rewards(left, dict(group.lines), task, aux)
        for prefix in group.prefixes:
            known = {line.metric for line in lines}
            parts = [name for name in left if name.startswith(prefix) and name not in (*known, "reward.aux.share")]
            lines += [Line(name, name.removeprefix(prefix).removesuffix(".mean"), group.id == "reward-components") for name in parts]
        lines = lines[:_MAX_LINES]
        if group.kind == "stack" and len(lines) == 2:
            lines = [Line(metric, label) for metric, label in group.lines]
        if len(lines) > 1:
            charts.append(_grouped(group, lines))
            for line in lines:
                left.pop(line.metric, None)
    charts += [_single(name) for name in left]
    charts += [_heat(name) for name in histograms if name in HISTOGRAM_BY_NAME]
    return sorted(charts, key=_place)


def _rewards(names: Iterable[str], labels: dict[str, str], task: str | None, aux: Sequence[str]) -> list[Line]:
    """The task first, then the verifier that is not trained on, then everything that only helps."""
    known = set(names)
    lines = [Line(task, task)] if task in known and task not in labels else []
    lines += [
        Line(name, label, beside=name not in ("reward.task.mean", "reward.audit.mean"), dashed=name == "reward.audit.mean")
        for name, label in labels.items()
        if name in known
    ]
    return lines + [Line(name, name, True) for name in aux if name in known and name not in labels and not name.startswith("reward.aux.")]


def _place(chart: Chart) -> tuple[int, int, int, str]:
    organ = ORGANS.index(chart.organ)
    first = min((_ORDER.get(line.metric, len(_ORDER)) for line in chart.lines), default=0)
    return organ, not chart.wide, first, chart.id


def _grouped(group: _Group, lines: list[Line]) -> Chart:
    described = [describe(line.metric) for line in lines]
    stack = group.kind == "stack"
    return Chart(
        id=group.id,
        organ=group.organ,
        title=group.title,
        lines=tuple(lines),
        unit=described[0].unit,
        help="; ".join(f"{line.label}: {metric.formula}" for line, metric in zip(lines, described, strict=True)),
        kind="stack" if stack and len(lines) == len(group.lines) else "lines",
        log=any(metric.log for metric in described),
        low=0.0 if all(metric.low == 0 for metric in described) else None,
        high=1.0 if all(metric.high == 1 for metric in described) else None,
        wide=group.wide,
    )


def _single(name: str) -> Chart:
    metric = describe(name)
    return Chart(
        id=_slug(name),
        organ=metric.organ,
        title=metric.title,
        lines=(Line(name, metric.title),),
        unit=metric.unit,
        help=metric.formula,
        log=metric.log,
        low=0.0 if metric.low == 0 else None,
        high=1.0 if metric.high == 1 else None,
    )


def _heat(name: str) -> Chart:
    histogram = HISTOGRAM_BY_NAME[name]
    return Chart(
        _slug(name), histogram.organ, histogram.title, (Line(name, histogram.title),), histogram.unit, "share of each step's values", kind="heat"
    )


def _slug(name: str) -> str:
    return "m-" + "".join(letter if letter.isalnum() else "-" for letter in name)
