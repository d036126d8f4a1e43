"""How the task reward stands: its best level so far, whether it rises, and whether it has fallen by more than noise and by enough to matter.

A fall has to pass two gates: standard errors of the run's own row-to-row noise (never less than that of the batch where its size is logged)
and a share of what there was to lose. The fewer rows it rests on, the stricter both are, so that a verifier that breaks is seen at once and
eight noisy rollouts are not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from monitor.detect import stats
from monitor.detect.history import Series
from monitor.detect.words import called

LEVEL_ROWS = 5
"""Rows whose mean is a level."""
RECENT_ROWS = 16
"""Newest rows whose noise counts by itself."""
WANDER_ROWS = 48
"""Rows from which slow wandering can be told from a trend."""
GATES = ((1, 8.0, 0.5), (2, 6.0, 0.4), (3, 4.5, 0.33), (8, 4.5, 0.25), (8, 3.5, 0.5))
"""(rows averaged, least standard errors, least share of the level lost): any of them is a fall."""
GAIN_FACTOR = 1.5
"""The shares are this much larger for a reward with an unknown floor, where only what was gained counts as level."""
OPENING_ROWS = 8
"""Rows of the run in which a fall is also measured from its very first rows, which for a fault from the start are the only good ones."""
OPENING, OPENING_DIP = (3, 3.5, 0.5), (3, 2.5, 0.33)
"""The gate of the opening and the milder one; judged only where the size of the batch says how uncertain so few rows are."""
PROMPT_SPREAD = 1.5
"""Samples of one prompt are alike: the error of a row is about so many binomial ones."""
DIP = (2, 3.0, 0.15)
"""The milder gate by which a fall supports another detector; of small batches it averages so many, ``DIP_MOST`` at most, that they hold
``DIP_ROLLOUTS`` rollouts."""
DIP_ROLLOUTS, DIP_MOST = 96, 12
DEEP = 0.25
"""Share of the level from which a dip is more than what a few bad rollouts cost."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """``best`` is the highest level so far and ``best_at`` its row; ``recent`` the mean of the ``rows`` newest values that decided; ``share``
    of the level was lost, ``z`` standard errors; ``noise`` is one row's. ``dip`` is a milder fall than ``fallen``, ``deep`` one of a quarter of
    the level. ``unit`` says that every value so far lies in [0, 1]. ``standing`` places the newest five rows between 0 and 1 for such a reward,
    else between the lowest and the highest row so far (0 when it never moved).
    """

    metric: str
    best: float
    best_at: int
    recent: float
    rows: int
    share: float
    z: float
    noise: float
    unit: bool
    fallen: bool
    dip: bool
    deep: bool
    rising: bool
    standing: float

    def solved(self, level: float, elsewhere: float = 2.0) -> bool:
        """Whether a reward in [0, 1] stands at ``level`` or above; ``elsewhere`` is the standing in its own range from which a reward with an
        unknown ceiling counts (by default none)."""
        return self.standing >= (level if self.unit else elsewhere)

    def says(self) -> str:
        over = "on the last row" if self.rows == 1 else f"over {self.rows} rows"
        return f"{called(self.metric)} {self.recent:.3g} {over}, was {self.best:.3g}"


@dataclass(frozen=True, slots=True)
class Sampling:
    """What a row says of its own sampling error: rollouts in the batch and the spread of their rewards, as far as logged."""

    sequences: float | None = None
    spread: float | None = None


@dataclass(frozen=True, slots=True)
class Strictness:
    """Factors on the gates' standard errors and shares."""

    errors: float = 1.0
    share: float = 1.0


SPREAD_SHARE = 0.1
"""Least noise of a row's mean as a share of the rewards' spread, where the batch size is unknown: the error of 100 rollouts."""


def row_noise(x: list[float], unit: bool, level: float, sampling: Sampling) -> float:
    """Standard deviation of one row: of all rows or of the newest ones, whichever is noisier (rewards that start at 0 get noisier as they
    rise), widened while the rows are few and for wandering once they are many, and at least the sampling error of the batch."""
    steps = stats.noise(x)
    sd = max(steps, stats.noise(x[-RECENT_ROWS:])) * math.sqrt(1 + 10 / max(len(x), 1))
    if len(x) >= WANDER_ROWS and steps > 0:
        # Scatter beyond the step noise is autocorrelation phi = 1 - (steps / scatter)^2: means of rows vary (1 + phi) / (1 - phi) times more.
        scatter = stats.scatter(x)
        phi = min(0.8, max(0.0, 1 - (steps / scatter) ** 2)) if scatter > steps else 0.0
        sd = max(sd, max(steps, scatter) * math.sqrt((1 + phi) / (1 - phi)))
    if unit and sampling.sequences:
        sd = max(sd, stats.binomial_se(min(max(level, 0.0), 1.0), sampling.sequences))
    if sampling.spread:
        sd = max(sd, SPREAD_SHARE * sampling.spread)
    return sd


def rising(x: list[float], sd: float) -> bool:
    """Whether the newest four rows lie above the eight before them by more than 1.5 standard errors."""
    if len(x) < 8:
        return False
    now, before = x[-4:], x[-12:-4]
    return stats.mean(now) - stats.mean(before) > 1.5 * sd * math.sqrt(1 / len(now) + 1 / len(before))


def remember(series: Series, memory: Mapping[str, Any]) -> dict[str, Any]:
    """The memory with the newest value counted: the best level, its row, and the range of all values.

    It restarts when the context names another series.
    """
    x = series.x
    after: dict[str, Any] = dict(memory)
    if after.get("name") != series.name:
        after = {"name": series.name, "low": x[-1], "high": x[-1], "start": x[-1]}
    after["low"], after["high"] = min(after["low"], x[-1]), max(after["high"], x[-1])
    if len(x) > LEVEL_ROWS:
        level = float(f"{stats.mean(x[-LEVEL_ROWS - 1 : -1]):.6g}")
        if level > after.get("best", -math.inf):
            after["best"], after["best_at"] = level, series.at[-2]
            after["best_noise"] = float(f"{stats.noise(x[-LEVEL_ROWS - 1 : -1]):.6g}")
    return after


def assess(series: Series, memory: Mapping[str, Any], sampling: Sampling, strictness: Strictness) -> tuple[dict[str, Any], Outcome | None]:
    """The next memory and the outcome of the row just added; no outcome before the fourth value."""
    x = list(series.x)
    if not x:
        return dict(memory), None
    after = remember(series, memory)
    if len(x) < 4:
        return after, None
    unit = bool(after["low"] >= 0 and after["high"] <= 1)
    ground = _Ground(x, unit, after, sampling, strictness, series.n)
    sequences = max(sampling.sequences or DIP_ROLLOUTS, DIP_ROLLOUTS / DIP_MOST)
    mild = (max(DIP[0], math.ceil(DIP_ROLLOUTS / sequences)), *DIP[1:])
    tests = [_test(ground, gate) for gate in (*GATES, mild) if len(x) >= gate[0] + 3]
    if series.n <= OPENING_ROWS and unit and sampling.sequences:
        firsts = range(1, len(x) - OPENING[0] + 1)
        tests += [_opening(ground, gate, rows, sampling.sequences) for gate in (OPENING, OPENING_DIP) for rows in firsts]
    dip, deep = any(t.passed for t in tests), any(t.passed and t.share >= DEEP for t in tests)
    falls = [t for t in tests if t.gate not in (mild, OPENING_DIP)]
    found = next((t for t in falls if t.passed), falls[0])
    up = rising(x, found.sd)
    best_at = int(after.get("best_at", series.at[-2]))
    newest, span = stats.mean(x[-5:]), after["high"] - after["low"]
    standing = newest if unit else (newest - after["low"]) / span if span > 0 else 0.0
    after["standing"] = float(f"{standing:.6g}")
    z = min(found.z, 99.0)
    return after, Outcome(
        series.name, found.level, best_at, found.recent, found.gate[0], found.share, z, found.sd, unit, found.passed, dip, deep, up, standing
    )


@dataclass(frozen=True, slots=True)
class _Ground:
    """What all gates of a row share."""

    x: list[float]
    unit: bool
    memory: Mapping[str, Any]
    sampling: Sampling
    strictness: Strictness
    seen: int


@dataclass(frozen=True, slots=True)
class _Tested:
    gate: tuple[int, float, float]
    level: float
    recent: float
    share: float
    z: float
    sd: float
    passed: bool


def _test(ground: _Ground, gate: tuple[int, float, float]) -> _Tested:
    """One gate on the newest values. In the first rows the level is the mean of what came before the rows under test.

    The noise is worked out for the first gate, whose noise is the row's, and where the other conditions hold.
    """
    rows, least_z, least_share = gate[0], gate[1] * ground.strictness.errors, gate[2] * ground.strictness.share
    before, tested, known = ground.x[:-rows], ground.x[-rows:], "best" in ground.memory
    level = float(ground.memory["best"]) if known else stats.mean(before)
    recent, room = stats.mean(tested), _room(before, ground.unit, level, ground.memory)
    share = (level - recent) / room if room > 0 else 0.0
    least = least_share if ground.unit else GAIN_FACTOR * least_share
    # One outlier is no fall: three quarters of the rows must lie at least half as low.
    far = share >= least and sum(v <= level - 0.5 * least * room for v in tested) >= 0.75 * rows
    if not far and gate != GATES[0]:
        return _Tested(gate, level, recent, share, 0.0, 0.0, False)
    # A level made of one lucky row among empty ones is as uncertain as that row.
    sd = max(row_noise(before, ground.unit, level, ground.sampling), float(ground.memory.get("best_noise", 0.0)))
    if rows >= 3:
        sd = max(sd, stats.noise(tested))
    averaged = min(LEVEL_ROWS, len(before))
    # The best of n noisy levels lies sqrt(2 ln n) errors above the true one (Gumbel); one of them is kept as margin for the few rows of most runs.
    extreme = max(1.0, math.sqrt(2 * math.log(max(math.e, ground.seen / LEVEL_ROWS))) - 1) if known else 0.0
    drop, se = level - recent - extreme * sd / math.sqrt(averaged), sd * math.sqrt(1 / rows + 1 / averaged)
    z = drop / se if se > 0 else (math.inf if drop > 0 else 0.0)
    return _Tested(gate, level, recent, share, z, sd, far and z >= least_z)


def _opening(ground: _Ground, gate: tuple[int, float, float], rows: int, sequences: float) -> _Tested:
    """Whether the newest values have lost the gate's share of the mean of the run's first ``rows``."""
    level, tested = stats.mean(ground.x[:rows]), ground.x[-gate[0] :]
    recent, strictness = stats.mean(tested), ground.strictness
    sd = PROMPT_SPREAD * stats.binomial_se(level, sequences)
    share = (level - recent) / level if level > 0 else 0.0
    z = (level - recent) / (sd * math.sqrt(1 / rows + 1 / len(tested))) if sd > 0 else 0.0
    least = gate[2] * strictness.share
    far = share >= least and all(v <= level - 0.5 * least * level for v in tested)
    return _Tested(gate, level, recent, share, z, sd, far and z >= gate[1] * strictness.errors)


def _room(before: list[float], unit: bool, level: float, memory: Mapping[str, Any]) -> float:
    """What there was to lose: the level itself for rewards in [0, 1], else what was gained over the lowest value before the fall; half of
    the level for a reward that never moved."""
    if unit:
        return level
    gained = level - min(float(memory["start"]), *before)
    return gained if gained > 0 else 2 * abs(level)
