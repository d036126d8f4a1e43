"""What the generic webhook posts: its own body, Alertmanager's, and a signature that its documentation verifies."""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import UTC, datetime, timedelta

import jsonschema_rs
import pytest
from hypothesis import given
from letters import AT, UID, letters, message
from standardwebhooks import Webhook as Signer

from docs.generate import HERE
from monitor.alerts.entry import Entry
from monitor.deliver import alertmanager, webhook
from monitor.deliver.digest import Digest
from monitor.deliver.schema import SCHEMA

BODY = jsonschema_rs.validator_for(SCHEMA, validate_formats=True)
SECRET = "whsec_" + b64encode(b"0123456789abcdef0123456789abcdef").decode()
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
ALERTMANAGER = jsonschema_rs.validator_for(
    {
        "type": "object",
        "properties": {
            "version": {"const": "4"},
            "groupKey": {"type": "string"},
            "truncatedAlerts": {"type": "integer"},
            "status": {"enum": ["firing", "resolved"]},
            "receiver": {"type": "string"},
            "groupLabels": TEXTS,
            "commonLabels": TEXTS,
            "commonAnnotations": TEXTS,
            "externalURL": {"type": "string"},
            "alerts": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "properties": {
                        "status": {"enum": ["firing", "resolved"]},
                        "labels": {**TEXTS, "required": ["alertname", "severity"]},
                        "annotations": {**TEXTS, "required": ["summary"]},
                        "startsAt": {"type": "string", "format": "date-time"},
                        "endsAt": {"type": "string", "format": "date-time"},
                        "generatorURL": {"type": "string"},
                        "fingerprint": {"type": "string"},
                    },
                    "required": ["status", "labels", "annotations", "startsAt", "endsAt", "generatorURL", "fingerprint"],
                    "additionalProperties": False,
                },
            },
        },
        "required": ["version", "groupKey", "status", "receiver", "groupLabels", "commonLabels", "commonAnnotations", "externalURL", "alerts"],
        "additionalProperties": False,
    },
    validate_formats=True,
)
"""https://prometheus.io/docs/alerting/latest/configuration/#webhook_config"""


@given(letters)
def test_the_body_is_strict_json_and_matches_its_schema(letter):
    BODY.validate(json.loads(json.dumps(webhook.body(letter), allow_nan=False)))


@given(letters)
def test_any_letter_has_alertmanagers_shape(letter):
    ALERTMANAGER.validate(json.loads(json.dumps(alertmanager.payload(letter, "hook"), allow_nan=False)))


def test_an_alert_keeps_its_fingerprint_and_its_start_when_it_ends():
    began, ended = AT, AT + timedelta(hours=1)
    fires = alertmanager.payload(message(opened_at=began, incident="i"), "hook")
    ends = alertmanager.payload(message(opened_at=began, at=ended, to_state="resolved", from_state="critical", incident="i"), "hook")
    (first,), (last,) = fires["alerts"], ends["alerts"]
    linked = alertmanager.payload(message(link="http://h/run/r", incident_link="http://h/incident/i"), "hook")
    assert (linked["externalURL"], linked["alerts"][0]["generatorURL"]) == ("http://h/incident/i", "http://h/run/r")
    assert (fires["status"], ends["status"]) == ("firing", "resolved") and fires["groupKey"] == ends["groupKey"]
    assert first["fingerprint"] == last["fingerprint"] and first["startsAt"] == last["startsAt"] == began.isoformat()
    assert first["endsAt"] == alertmanager.NEVER and last["endsAt"] == ended.isoformat()
    assert first["labels"] == {
        "alertname": "weights", "severity": "critical", "project": "repair", "run": "r", "run_name": "goblin", "organ": "policy",
    }  # fmt: skip
    assert first["annotations"]["first_remedy"] == "clip" and "1,412" in first["annotations"]["description"]


def test_a_digest_is_one_notification_of_many_alerts():
    entries = [
        Entry(UID, f"{n}" * 16, "repair", f"r{n}", f"run {n}", "stalled", "resolved" if n == 1 else "critical", "No rows.", 5, AT) for n in (1, 2)
    ]
    found = alertmanager.payload(Digest(UID, AT, tuple(entries)), "hook")
    assert [each["status"] for each in found["alerts"]] == ["resolved", "firing"] and found["status"] == "firing"
    assert found["commonLabels"] == {"alertname": "stalled", "project": "repair"}
    assert len({each["fingerprint"] for each in found["alerts"]}) == 2


def test_the_documented_way_verifies_what_is_sent():
    written = (HERE / "webhook.md").read_text().split("```python\n")[1].split("```")[0]
    room: dict[str, object] = {}
    exec(written, room)  # the documentation's own code
    content, now = json.dumps(webhook.body(message())).encode(), datetime.now(UTC)
    headers = {
        "Webhook-Id": UID,
        "Webhook-Timestamp": str(int(now.timestamp())),
        "Webhook-Signature": Signer(SECRET).sign(UID, now, content.decode()),
    }
    assert room["verified"](SECRET, content, headers)["type"] == "alert.critical"
    with pytest.raises(ValueError, match="not from rlvitals"):
        room["verified"](SECRET, content + b" ", headers)
