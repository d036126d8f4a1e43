"""Which alarms are one story, and which of them are explained by another.

Alarms of a run that begin within :data:`WINDOW` rows of each other are one incident. Inside it, a symptom whose cause is an open alarm of at
least the same severity, raised no later, is held: it is stored and shown, and nobody is told. When it outlives its cause, they are.

A story ends with its damage: while the reward of the task lies where a fall has left it, no other alarm of that incident is over because its own
sign has passed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from monitor.alerts.book import LATE, Book, Episode, is_alarm, rank

WINDOW = 10
"""Rows after an incident last grew within which a new alarm joins it."""

FARMING = frozenset(
    ("entropy_high", "entropy_low", "kl_acceleration", "length_runaway", "length_collapse", "repetition", "truncation", "peak_and_fall")
)
"""What follows when an auxiliary reward is earned instead of the task."""

SYMPTOMS: Mapping[str, frozenset[str]] = {
    "mismatch": frozenset(("weight_explosion", "kl_acceleration", "entropy_high", "grad_spike", "peak_and_fall")),
    "staleness": frozenset(("mismatch", "weight_explosion", "kl_acceleration")),
    "weight_explosion": frozenset(("kl_acceleration", "entropy_high", "entropy_low", "grad_spike", "peak_and_fall")),
    "huge_advantage": frozenset(("grad_spike", "weight_explosion", "kl_acceleration")),
    "grad_spike": frozenset(("kl_acceleration", "peak_and_fall")),
    "aux_share": frozenset(("aux_divergence", *FARMING)),
    "aux_divergence": FARMING,
    "audit_gap": frozenset(("entropy_low", "kl_acceleration", "length_runaway", "length_collapse", "repetition")),
    "repetition": frozenset(("length_runaway", "truncation", "entropy_low", "slowdown")),
    "length_runaway": frozenset(("truncation", "slowdown")),
    "truncation": frozenset(("all_fail", "no_signal", "slowdown", "peak_and_fall")),
    "environment_errors": frozenset(("all_fail", "no_signal", "peak_and_fall", "slowdown")),
    "all_fail": frozenset(("no_signal", "learning_nothing")),
    "no_signal": frozenset(("learning_nothing",)),
    "entropy_low": frozenset(("no_signal", "learning_nothing")),
}
"""Cause -> what follows from it. A number that is not finite spoils everything computed after it and explains every other alarm."""


RUIN = "peak_and_fall"
"""The detector whose alarm says that a run has lost what it had learned, for as long as that is so."""


def lasts(alarm: Episode, book: Book) -> bool:
    """Whether an alarm is kept open by the ruin that it is part of."""
    ruin = book.episodes.get(RUIN)
    return ruin is not None and ruin is not alarm and is_alarm(ruin.state) and is_alarm(alarm.state) and ruin.incident == alarm.incident


_EXPLAINS = " explains it"


def explains(cause: Episode, symptom: Episode) -> bool:
    """Whether an open alarm accounts for another of the same incident."""
    if cause is symptom or cause.incident != symptom.incident or not is_alarm(cause.state) or rank(cause.state) < rank(symptom.state):
        return False
    if (cause.alarm_index or 0) > (symptom.alarm_index or 0):
        return False
    name, other = cause.finding.detector, symptom.finding.detector
    return other in SYMPTOMS.get(name, ()) or name == "non_finite"


def roots(alarms: Collection[Episode]) -> list[Episode]:
    """Those of ``alarms`` that none of the others is known to cause, whichever was raised first; all of them if each has a cause among them."""
    causes = first_causes([alarm.finding.detector for alarm in alarms])
    return [alarm for alarm in alarms if alarm.finding.detector in causes]


def first_causes(detectors: Collection[str]) -> frozenset[str]:
    """Those of ``detectors`` that none of the others is known to cause; all of them if each has a cause among them."""
    followed = {symptom for name in detectors for symptom in SYMPTOMS.get(name, ())}
    return frozenset(detectors) - followed or frozenset(detectors)


def holder(symptom: Episode, open_: Iterable[Episode]) -> str:
    """The detector that explains ``symptom``: of several causes the one raised first; empty if none does."""
    causes = [cause for cause in open_ if explains(cause, symptom)]
    return min(causes, key=lambda cause: cause.alarm_index or 0).finding.detector if causes else ""


def held_reason(holder: str) -> str:
    """Why nobody is told of a symptom that ``holder`` explains (:func:`held_by` reads it), or of what late rows show."""
    if holder == LATE:
        return "its rows arrived long after they were logged"
    return f"{holder}{_EXPLAINS}"


def held_by(reason: str | None) -> str:
    """The detector named by :func:`held_reason`; empty for any other reason."""
    return reason.removesuffix(_EXPLAINS) if reason is not None and reason.endswith(_EXPLAINS) else ""


def joined(book: Book, index: int) -> int:
    """The number of the incident that an alarm beginning at row ``index`` belongs to: the newest if it is open and grew lately, else a new
    one."""
    open_ = book.incidents > 0 and any(episode.incident == book.incidents and is_alarm(episode.state) for episode in book.episodes.values())
    return book.incidents if open_ and index - book.grown_index <= WINDOW else book.incidents + 1
