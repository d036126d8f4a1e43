"""Words of sentences for people: metrics by their titles, and counted things."""

from __future__ import annotations

from monitor.metrics import describe


def called(name: str) -> str:
    """What a sentence calls a metric: its title with a small letter ("task reward", "KL to the reference"); a custom metric's own name."""
    metric = describe(name)
    if metric.organ == "custom":
        return name
    return lower(metric.title.replace(": ", " "))


def lower(sentence: str) -> str:
    """``sentence`` as it reads inside another: names such as KL and ESS keep their capitals."""
    return sentence[:1].lower() + sentence[1:] if sentence[1:2].islower() else sentence


def upper(sentence: str) -> str:
    """``sentence`` as it reads at the beginning."""
    return sentence[:1].upper() + sentence[1:]


def counted(number: int, noun: str = "row") -> str:
    """ "1 row", "3 rows"."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def latest(number: int) -> str:
    """ "the last row", "the last 3 rows"."""
    return "the last row" if number == 1 else f"the last {number:,} rows"
