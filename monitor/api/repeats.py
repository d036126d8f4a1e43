"""An answer given again, before anything of the request is looked at but its address: most open pages ask what another has just asked.

The way of a request through framework and routes costs more than such an answer, above all where requests are rare and caches cold.
"""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from monitor.wire import API

_Key = tuple[str, bytes, bool]
_READS = ("GET", "HEAD", "OPTIONS")
_ERA = "vitals.era"


class Repeats:
    """Answers to keep for a moment, by path, query and whether they may be packed. What people do through this process ends them all."""

    def __init__(self) -> None:
        self._kept: dict[_Key, tuple[float, Response]] = {}
        self._era = 0

    def keep(self, request: Request, answer: Response, until: float) -> Response:
        """``answer``, which whoever sends the same GET before ``until`` (of ``time.monotonic``) gets too."""
        now = time.monotonic()
        self._kept = {key: kept for key, kept in self._kept.items() if kept[0] > now}
        # What was read before somebody did something, and is answered after it, is old already.
        if request.scope.get(_ERA, self._era) == self._era:
            self._kept[_key(request.scope)] = until, answer
        return answer

    def find(self, scope: Scope) -> Response | None:
        """What was kept for this request, if it still holds."""
        scope[_ERA] = self._era
        kept = self._kept.get(_key(scope))
        return kept[1] if kept is not None and kept[0] > time.monotonic() else None

    def forget(self) -> None:
        self._era += 1
        self._kept.clear()


class Repeated:
    """The layer of the application that gives kept answers. It belongs behind whoever decides who may come in."""

    def __init__(self, app: ASGIApp, repeats: Repeats) -> None:
        self._app, self._repeats = app, repeats

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") == "GET" and (known := self._repeats.find(scope)) is not None:
            await known(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        finally:
            if _acts(scope):
                self._repeats.forget()


def packs(scope: Scope) -> bool:
    """Whether who asks takes a packed answer."""
    return any(b"gzip" in value for name, value in scope["headers"] if name == b"accept-encoding")


def _acts(scope: Scope) -> bool:
    """Whether somebody may have done something. Rows come all the time, and no page asks more often than answers are kept."""
    path: str = scope.get("path", "")
    return scope.get("method", "GET") not in _READS and path.startswith(f"{API}/") and not path.endswith("/batches")


def _key(scope: Scope) -> _Key:
    return scope["path"], scope["query_string"], packs(scope)
