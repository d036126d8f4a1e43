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
    "reason": _said("Why the alert changed, for instance opened, rose, reopened or quiet.", _TEXT),
    "step": _said("The step at which it changed.", _STEP),
    "opened_step": _said("The step at which the alert opened.", _STEP),
    "since_step": _said("The estimated onset of the trouble, where the detector has one.", _maybe(_STEP)),
    "title": _TEXT,
    "verdict": _said("The run's verdict in one sentence.", _TEXT),
    "evidence": _TEXT,
    "cause": _TEXT,
    "advice": _said("What to do first.", _TEXT),
    "refutation": _said("What would speak against the finding; may be empty.", _TEXT),
    "metric": _TEXT,
    "value": _NUMBER,
    "baseline": _said("What was normal for this run.", _maybe(_NUMBER)),
    "limit": _said("The threshold that was crossed.", _maybe(_NUMBER)),
    "moved": _said("Other metrics that moved, first mover first.", {"type": "array", "items": _TEXT}),
    "cascade": {
        "description": "The other alarms of the incident, first mover first.",
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"detector": _TEXT, "severity": {"enum": _STATES}, "title": _TEXT, "since_step": _STEP},
            "required": ["detector", "severity", "title", "since_step"],
            "additionalProperties": False,
        },
    },
    "link": _said("The run's page at the step; empty if no public address is set.", _TEXT),
    "rollouts": {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"step": _STEP, "pick": _TEXT, "text": _TEXT, "rewards": {"type": "object", "additionalProperties": _NUMBER}},
            "required": ["step", "pick", "text", "rewards"],
            "additionalProperties": False,
        },
    },
}

SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "rlvitals alert",
    "type": "object",
    "properties": {
        "type": _said("alert.STATE, where STATE is what the alert changed to; channel.test for a test message.", {"type": "string"}),
        "timestamp": _said("When it changed.", {"type": "string", "format": "date-time"}),
        "data": {"type": "object", "properties": _DATA, "required": list(_DATA), "additionalProperties": False},
    },
    "required": ["type", "timestamp", "data"],
    "additionalProperties": False,
}
"""JSON Schema 2020-12."""
