"""One change of one alert, as a line of a list that many of them share."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Entry:
    """``uid`` is the transition's, ``alert`` the episode's, ``title`` the finding's, ``incident`` what it is part of, or empty."""

    uid: str
    alert: str
    project: str
    run: str
    run_name: str
    detector: str
    state: str
    title: str
    step: int
    at: datetime
    incident: str = ""
