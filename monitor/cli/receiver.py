"""A small webhook receiver for the demo: takes signed deliveries on loopback and hands each new payload on."""

from __future__ import annotations

import http.server
import json
import secrets
import threading
from base64 import b64encode
from collections.abc import Callable
from typing import Any

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

MAX_PAYLOAD = 2**20


class Receiver:
    """Listens on a free port of 127.0.0.1. Every payload with a valid Standard Webhooks signature and a new id reaches ``on_payload``."""

    def __init__(self, on_payload: Callable[[dict[str, Any]], None]) -> None:
        self.secret = "whsec_" + b64encode(secrets.token_bytes(24)).decode()
        self.payloads: list[dict[str, Any]] = []
        self._seen: set[str] = set()
        self._lock = threading.Lock()
        self._on_payload = on_payload
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, name="receiver", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/alerts"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _accept(self, headers: dict[str, str], body: bytes) -> int:
        try:
            Webhook(self.secret).verify(body, headers)
        except WebhookVerificationError:
            return 401
        with self._lock:
            new = headers["webhook-id"] not in self._seen
            self._seen.add(headers["webhook-id"])
            if new:
                self.payloads.append(payload := json.loads(body))
                self._on_payload(payload)
        return 204

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        accept = self._accept

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                status = 413 if length > MAX_PAYLOAD else accept({k.lower(): v for k, v in self.headers.items()}, self.rfile.read(length))
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler
