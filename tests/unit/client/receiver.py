"""A collector's HTTP side in a thread: keeps what it is sent, answers as told."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from monitor.wire import read_number


@dataclass
class Reply:
    """One answer; ``cut`` sends only that many bytes of the body and hangs up."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None


Behaviour = Callable[[str, dict[str, Any]], Reply | None]


class Receiver:
    """``starts``, ``batches`` and ``ends`` in order of arrival; ``behave`` may answer in its place (None: the usual answer)."""

    def __init__(self, port: int = 0) -> None:
        self.starts: list[dict[str, Any]] = []
        self.batches: list[dict[str, Any]] = []
        self.ends: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.requests: list[str] = []
        self.behave: Behaviour = lambda path, message: None
        self.connections: list[socket.socket] = []
        self.lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                receiver.connections.append(self.connection)

            def do_POST(self) -> None:
                message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with receiver.lock:
                    receiver.headers.append(dict(self.headers))
                    reply = receiver.behave(self.path, message) or receiver.usual(self.path, message)
                self.send_response(reply.status)
                for name, value in ({"Content-Length": str(len(reply.body)), "Content-Type": "application/json"} | reply.headers).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(reply.body[: reply.cut])
                if reply.cut is not None:
                    self.close_connection = True

            def log_message(self, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Clients that hang up are part of the tests."""

        self.server = _listening(lambda number: Server(("127.0.0.1", number), Handler), port)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def usual(self, path: str, message: dict[str, Any]) -> Reply:
        if path.endswith("/runs"):
            self.starts.append(message)
            return Reply(body=json.dumps({"run": message["run"], "segment": 0, "url": f"{self.url}/run/{message['run']}"}).encode())
        if path.endswith("/batches"):
            self.batches.append(message)
            answer = {"accepted": len(message["rows"]), "duplicate": 0, "refused": [], "requests": self.requests}
            return Reply(body=json.dumps(answer).encode())
        self.ends.append(message)
        return Reply(body=b'{"state": "finished"}')

    def rows(self, run: str | None = None) -> list[dict[str, Any]]:
        return [row for batch in self.batches for row in batch["rows"]]

    def values(self, name: str) -> list[float | None]:
        return [read_number(row["values"][name]) for row in self.rows() if name in row["values"]]

    def records(self, kind: str) -> list[dict[str, Any]]:
        return [record for batch in self.batches for record in batch[kind]]

    def close(self) -> None:
        """Stop listening and hang up on everybody, as a killed process would."""
        self.server.shutdown()
        self.server.server_close()
        for connection in self.connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def _listening(serve: Callable[[int], ThreadingHTTPServer], port: int) -> ThreadingHTTPServer:
    """A server on ``port``, or on a free one below those of outgoing connections: there a client that asks a closed port again and again could be
    given that very port and be connected to itself."""
    for number in [port] if port else random.Random().sample(range(20_000, 32_000), 50):
        with suppress(OSError):
            return serve(number)
    raise AssertionError(f"nothing could listen on {port or 'any of 50 ports'}")


@contextmanager
def receiving(port: int = 0) -> Iterator[Receiver]:
    receiver = Receiver(port)
    try:
        yield receiver
    finally:
        receiver.close()


def eventually(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    """The first true value of ``condition``; fails when there is none for a long time."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)
    return found
