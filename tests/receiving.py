"""A real HTTP receiver whose answers are scripted."""

from __future__ import annotations

import http.server
import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Received:
    """One request that reached the receiver; ``answer`` is what it got."""

    at: float
    id: str
    headers: dict[str, str]
    body: bytes
    answer: Any
    path: str = ""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(slots=True)
class Receiver:
    """Listens on a free port of 127.0.0.1. ``answer(n)`` gives the n-th request (from 1) a status, a (status, headers) pair, a dictionary (200 and
    JSON), or one of
    ``hang`` (reads, then says nothing for ``hang_s``), ``cut`` (closes without an answer) and ``drip`` (a header every 0.2 s, for ever)."""

    answer: Callable[[int], Any] = lambda n: 204
    hang_s: float = 30.0
    requests: list[Received] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _closed: threading.Event = field(default_factory=threading.Event)
    _server: http.server.ThreadingHTTPServer | None = None

    def __enter__(self) -> Receiver:
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._closed.set()
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.server_address[1]}/hooks/SECRET-PATH"

    @property
    def taken(self) -> list[Received]:
        """The requests that were answered with success."""
        with self._lock:
            return [r for r in self.requests if isinstance(r.answer, int) and 200 <= r.answer < 300]

    def _handler(receiver) -> type[http.server.BaseHTTPRequestHandler]:
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                headers = {key.lower(): value for key, value in self.headers.items()}
                with receiver._lock:
                    answer = receiver.answer(len(receiver.requests) + 1)
                    receiver.requests.append(Received(time.monotonic(), headers.get("webhook-id", ""), headers, body, answer, self.path))
                if answer == "hang":
                    receiver._closed.wait(receiver.hang_s)
                if answer in ("hang", "cut"):
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                if answer == "drip":
                    self._drip()
                    return
                said = json.dumps(answer).encode() if isinstance(answer, dict) else b""
                status, extra = answer if isinstance(answer, tuple) else (200 if said else answer, {})
                self.send_response(status)
                for name, value in extra.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def _drip(self) -> None:
                self.wfile.write(b"HTTP/1.1 200 OK\r\n")
                while not receiver._closed.wait(0.2):
                    try:
                        self.wfile.write(b"x-more: yes\r\n")
                    except OSError:
                        return

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler
