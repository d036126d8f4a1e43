"""HTTP to the collector with the standard library only: one message in, one :class:`Answer` out, never an exception."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

TIMEOUT_S = 10.0
NOT_A_COLLECTOR = "the answer is not that of a collector"


@dataclass(frozen=True, slots=True)
class Answer:
    """``status`` is the HTTP status, 0 when none arrived; ``body`` the parsed JSON object, empty when there is none.

    ``problem`` says why the answer is not the one hoped for; it is empty exactly when the collector has taken the message.
    """

    status: int
    body: dict[str, Any] = field(default_factory=dict)
    problem: str = ""
    retry_after: float | None = None

    @property
    def ok(self) -> bool:
        return not self.problem

    @property
    def permanent(self) -> bool:
        """Whether sending the same message again cannot help. A missing token can be given later, so 401 and 403 are not permanent."""
        return 400 <= self.status < 500 and self.status not in (401, 403, 404, 408, 425, 429)


class Transport:
    """A kept-alive connection to the collector at ``url``. Used by one thread."""

    def __init__(self, url: str, token: str | None) -> None:
        self.url = url.rstrip("/")
        self.token = token
        self._headers = {"Content-Type": "application/json", "User-Agent": "rlvitals"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._connection: Any = None
        self._timed_out = False

    def post(self, path: str, body: bytes) -> Answer:
        """POST ``body`` to ``path``; a connection that the server closed meanwhile is opened again once."""
        reused = self._connection is not None
        self._timed_out = False
        answer = self._post(path, body)
        return self._post(path, body) if reused and answer.status == 0 and not self._timed_out else answer

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _post(self, path: str, body: bytes) -> Answer:
        from http.client import HTTPException

        try:
            connection = self._connect()
            connection.request("POST", self._base + path, body, self._headers)
            response = connection.getresponse()
            text = response.read(2**20)
            if response.will_close or not response.isclosed():
                self.close()
        except (OSError, HTTPException, ValueError) as error:
            self._timed_out = isinstance(error, TimeoutError)
            self.close()
            return Answer(0, problem=f"{type(error).__name__}: {error}")
        return _answer(response.status, text, response.getheader("Retry-After"))

    def _connect(self) -> Any:
        if self._connection is None:
            from http.client import HTTPConnection, HTTPSConnection
            from urllib.parse import urlsplit

            parts = urlsplit(self.url)
            kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
            self._base = parts.path.rstrip("/")
            self._connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
        return self._connection


def _answer(status: int, text: bytes, retry_after: str | None) -> Answer:
    try:
        body = json.loads(text) if text else {}
    except ValueError:
        body = None
    if 200 <= status < 300:
        if not isinstance(body, dict) or not body:
            return Answer(status, problem=NOT_A_COLLECTOR)
        return Answer(status, body)
    detail = body.get("error", body.get("detail", body)) if isinstance(body, dict) else text[:200].decode("utf-8", "replace")
    problem = f"HTTP {status}: {detail if isinstance(detail, str) else json.dumps(detail)[:500]}"
    return Answer(status, body if isinstance(body, dict) else {}, problem, _seconds(retry_after))


def _seconds(retry_after: str | None) -> float | None:
    try:
        return min(max(float(retry_after), 0.0), 600.0) if retry_after is not None else None
    except ValueError:
        return None
