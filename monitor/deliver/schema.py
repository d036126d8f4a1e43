"""The JSON schema of the generic webhook's body, for whoever writes a receiver."""

from __future__ import annotations

from typing import Any

_TEXT = {"type": "string"}
_STEP = {"type": "integer", "minimum": 0}
_NUMBER = {"oneOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}
_STATES = ["ok", "information", "watch", "warning", "critical", "resolved"]


def _maybe(schema: dict[str, Any]) -> dict[str, Any]:
    return {"oneOf": [schema, {"type": "null"}]}


def _said(text: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "description": text}


def _list(**properties: dict[str, Any]) -> dict[str, Any]:
    items = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return {"type": "array", "items": items}


_DATA: dict[str, dict[str, Any]] = {
    "id": _said("The change of the alert; the same on every attempt, so drop what you have seen.", {"type": "string", "format": "uuid"}),
    "alert": _said("The alert; the same for all its changes.", {"type": "string"}),
    "incident": _said("What groups alerts that are one story; empty for none.", {"type": "string"}),
    "project": _TEXT,
    "run": _said("The run's identifier.", _TEXT),
    "run_name": _TEXT,
    "detector": _TEXT,
    "organ": _said("The part of the run that is ill.", _TEXT),
    "from": {"enum": _STATES},
    "to": {"enum": _STATES},
    "reason": _said("Why the alert changed, for instance opened, rose, reopened or quiet; repeated for one that nobody has acknowledged.", _TEXT),
    "step": _said("The step at which it changed.", _STEP),
    "opened_step": _said("The step at which the alert opened.", _STEP),
    "since_step": _said("The estimated onset of the trouble, where the detector has one.", _maybe(_STEP)),
    "title": _TEXT,
    "verdict": _said("The run's verdict in one sentence.", _TEXT),
    "evidence": _TEXT,
    "cause": _TEXT,
    "advice": _said("What to do first.", _TEXT),
    "refutation": _said("What would speak against the finding; may be empty.", _TEXT),
    "acted": _said("What the rules asked the run to do because of it, or would have; empty for nothing.", _TEXT),
    "metric": _TEXT,
    "value": _NUMBER,
    "baseline": _said("What was normal for this run.", _maybe(_NUMBER)),
    "limit": _said("The threshold that was crossed.", _maybe(_NUMBER)),
    "moved": _said("Other metrics that moved, first mover first.", {"type": "array", "items": _TEXT}),
    "cascade": _said(
        "The other alarms of the incident, first mover first.",
        _list(detector=_TEXT, severity={"enum": _STATES}, title=_TEXT, since_step=_STEP),
    ),
    "link": _said("The run's page at the step; empty if no public address is set.", _TEXT),
    "incident_link": _said("The incident's page, where people act on it; empty like the other, or where the alert is part of none.", _TEXT),
    "rollouts": _list(step=_STEP, pick=_TEXT, text=_TEXT, rewards={"type": "object", "additionalProperties": _NUMBER}),
}

_DIGEST: dict[str, dict[str, Any]] = {
    "id": _said("The digest; the same on every attempt.", {"type": "string", "format": "uuid"}),
    "title": _TEXT,
    "counts": _said("How many changes, by project and detector, the most first.", _list(project=_TEXT, detector=_TEXT, count={"type": "integer"})),
    "alerts": _said(
        "Every change that the digest stands for, in order; none of them is sent by itself.",
        _list(
            id={"type": "string", "format": "uuid"},
            alert=_TEXT,
            project=_TEXT,
            run=_TEXT,
            run_name=_TEXT,
            detector=_TEXT,
            to={"enum": _STATES},
            title=_TEXT,
            step=_STEP,
            incident=_TEXT,
        ),
    ),
    "link": _said("The page that lists them; empty if no public address is set.", _TEXT),
}

_TEST: dict[str, dict[str, Any]] = {"id": {"type": "string", "format": "uuid"}, "title": _TEXT, "text": _TEXT, "link": _TEXT}


def _event(type_: dict[str, Any], title: str, data: dict[str, dict[str, Any]]) -> dict[str, Any]:
    properties = {
        "type": type_,
        "timestamp": _said("When it happened.", {"type": "string", "format": "date-time"}),
        "data": {"type": "object", "properties": data, "required": list(data), "additionalProperties": False},
    }
    return {"title": title, "type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "What the webhook of rlvitals posts",
    "oneOf": [
        _event({"enum": [f"alert.{state}" for state in _STATES]}, "One change of one alert; the type names what it changed to", _DATA),
        _event({"const": "alert.digest"}, "Many changes at once", _DIGEST),
        _event({"const": "channel.test"}, "A test of the channel", _TEST),
    ],
}
"""JSON Schema 2020-12."""
