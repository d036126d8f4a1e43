"""The generic webhook: one JSON object per change of an alert, signed after the Standard Webhooks specification.

Headers: ``webhook-id`` (the transition's uid, the same on every attempt), ``webhook-timestamp`` (Unix seconds of the attempt) and, with a
secret, ``webhook-signature``. The body is described by :data:`monitor.deliver.schema.SCHEMA`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from standardwebhooks import Webhook as Signer

from monitor import wire
from monitor.deliver import alertmanager
from monitor.deliver.channel import ChannelError, Receipt
from monitor.deliver.digest import Digest
from monitor.deliver.letter import Letter, main_link
from monitor.deliver.message import Message
from monitor.deliver.post import TIMEOUT_S, Poster

SECRET_BYTES = range(24, 65)
"""How long a secret may be (Standard Webhooks, "Signature scheme")."""


class Webhook:
    """Posts to ``url``. ``secret`` is base64 of :data:`SECRET_BYTES`, with or without the prefix ``whsec_``; ``shape`` is one of :data:`SHAPES`.
    Raises ChannelError for a wrong setting."""

    interval_s = 0.0

    def __init__(
        self, name: str, url: str, secret: str | None = None, *, shape: str = "rlvitals", private: bool = False, timeout_s: float = TIMEOUT_S
    ) -> None:
        self.name = name
        self._shape = SHAPES[shape]
        self._poster = Poster(url, private=private, timeout_s=timeout_s)
        self._signer = None if secret is None else signer(secret)

    def __repr__(self) -> str:
        return f"Webhook({self.name!r}, host={self._poster.host!r})"

    @property
    def about(self) -> str:
        return f"webhook at {self._poster.host}, {'not signed' if self._signer is None else 'signed'}"

    async def send(self, letter: Letter) -> Receipt:
        content = wire.to_json(self._shape(letter, self.name))
        now = datetime.now(UTC)
        headers = {"webhook-id": letter.uid, "webhook-timestamp": str(int(now.timestamp()))}
        if self._signer is not None:
            headers["webhook-signature"] = self._signer.sign(letter.uid, now, content.decode())
        return await self._poster.post(content, headers)

    async def close(self) -> None:
        await self._poster.close()


def body(letter: Letter) -> dict[str, Any]:
    """The JSON object of a letter; non-finite numbers are spelled ``NaN``, ``Infinity`` and ``-Infinity``."""
    tree: dict[str, Any] = wire.spelled(
        _alert(letter) if isinstance(letter, Message) else _digest(letter) if isinstance(letter, Digest) else _test(letter)
    )
    return tree


def _alert(message: Message) -> dict[str, Any]:
    finding = message.finding
    return {
        "type": f"alert.{message.to_state}",
        "timestamp": message.at.isoformat(),
        "data": {
            "id": message.uid,
            "alert": message.alert,
            "incident": message.incident,
            "project": message.project,
            "run": message.run,
            "run_name": message.run_name,
            "detector": message.detector,
            "organ": message.organ,
            "from": message.from_state,
            "to": message.to_state,
            "reason": message.reason,
            "step": message.step,
            "opened_step": message.opened_step,
            "since_step": finding.since_step,
            "title": finding.title,
            "verdict": message.verdict,
            "evidence": finding.evidence,
            "cause": finding.cause,
            "advice": finding.advice,
            "refutation": finding.refutation,
            "acted": message.acted,
            "metric": finding.metric,
            "value": finding.value,
            "baseline": finding.baseline,
            "limit": finding.limit,
            "moved": finding.moved,
            "cascade": [{"detector": e.detector, "severity": e.severity, "title": e.title, "since_step": e.since_step} for e in message.cascade],
            "link": message.link,
            "incident_link": message.incident_link,
            "rollouts": [{"step": e.step, "pick": e.pick, "text": e.text, "rewards": e.rewards} for e in message.excerpts],
        },
    }


def _digest(digest: Digest) -> dict[str, Any]:
    counts = [{"project": project, "detector": detector, "count": count} for project, detector, count in digest.counts]
    alerts = [
        {
            "id": e.uid,
            "alert": e.alert,
            "project": e.project,
            "run": e.run,
            "run_name": e.run_name,
            "detector": e.detector,
            "to": e.state,
            "title": e.title,
            "step": e.step,
            "incident": e.incident,
        }
        for e in digest.entries
    ]
    data = {"id": digest.uid, "title": digest.title, "counts": counts, "alerts": alerts, "link": digest.link}
    return {"type": "alert.digest", "timestamp": digest.at.isoformat(), "data": data}


def _test(letter: Letter) -> dict[str, Any]:
    data = {"id": letter.uid, "title": letter.title, "text": letter.verdict, "link": main_link(letter)}
    return {"type": "channel.test", "timestamp": letter.at.isoformat(), "data": data}


SHAPES: Mapping[str, Callable[[Letter, str], dict[str, Any]]] = {"rlvitals": lambda letter, _: body(letter), "alertmanager": alertmanager.payload}
"""What can be posted: our own body, or what Alertmanager posts."""


def signer(secret: str) -> Signer:
    """What signs with ``secret``. Raises ChannelError."""
    plain = secret.strip().removeprefix("whsec_").rstrip("=")
    try:
        key = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except ValueError:
        key = b""
    if len(key) not in SECRET_BYTES:
        found = f"{len(key)} bytes" if key else "no base64"
        wanted = f"base64 of {SECRET_BYTES[0]} to {SECRET_BYTES[-1]} bytes, and this is {found}"
        raise ChannelError(f"the webhook's secret must be {wanted}; `echo whsec_$(openssl rand -base64 32)` makes one")
    return Signer(key)
