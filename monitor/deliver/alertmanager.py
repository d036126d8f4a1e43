"""A letter in the shape that Alertmanager posts to webhooks (version 4), for receivers that are there already.

https://prometheus.io/docs/alerting/latest/configuration/#webhook_config. Alerts are grouped by incident; the same alert keeps its fingerprint
from firing to resolved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from monitor.deliver.digest import Digest
from monitor.deliver.letter import Letter, main_link, plain
from monitor.deliver.message import Message

NEVER = "0001-01-01T00:00:00Z"
"""Go's zero time: an alert that has not ended."""


def payload(letter: Letter, receiver: str) -> dict[str, Any]:
    """One notification."""
    if isinstance(letter, Message):
        alerts = [_alert(letter)]
    elif isinstance(letter, Digest):
        alerts = [
            _entry(e.detector, e.state, e.alert, e.at, e.at, letter.link, e.title, project=e.project, run=e.run, run_name=e.run_name)
            for e in letter.entries
        ]
    else:
        alerts = [_entry("rlvitals_test", letter.state, letter.uid, letter.at, letter.at, main_link(letter), letter.title)]
    status = "firing" if any(each["status"] == "firing" for each in alerts) else "resolved"
    group = {"incident": letter.story or letter.uid}
    return {
        "version": "4",
        "groupKey": f'{{}}:{{incident="{group["incident"]}"}}',
        "truncatedAlerts": 0,
        "status": status,
        "receiver": receiver,
        "groupLabels": group,
        "commonLabels": _common([each["labels"] for each in alerts]),
        "commonAnnotations": _common([each["annotations"] for each in alerts]),
        "externalURL": main_link(letter),
        "alerts": alerts,
    }


def _alert(message: Message) -> dict[str, Any]:
    began = message.opened_at or message.at
    found = _entry(
        message.detector,
        message.state,
        message.alert,
        began,
        message.at,
        message.link,
        message.summary,
        project=message.project,
        run=message.run,
        run_name=message.run_name,
        organ=message.organ,
    )
    found["annotations"] |= {"description": plain(message)} | {label.lower().replace(" ", "_"): text for label, text in message.paragraphs}
    return found


def _entry(name: str, state: str, fingerprint: str, began: datetime, at: datetime, link: str, summary: str, **labels: str) -> dict[str, Any]:
    over = state in ("resolved", "ok")
    return {
        "status": "resolved" if over else "firing",
        "labels": {"alertname": name, "severity": "none" if over else state, **labels},
        "annotations": {"summary": summary},
        "startsAt": began.isoformat(),
        "endsAt": at.isoformat() if over else NEVER,
        "generatorURL": link,
        "fingerprint": fingerprint.replace("-", "")[:16],
    }


def _common(every: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """What all of them say alike."""
    return {name: value for name, value in every[0].items() if all(each.get(name) == value for each in every)}
