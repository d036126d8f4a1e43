"""Who may come in.

With a token, everything needs it but ``/healthz``, the login page and static files: programs send ``Authorization: Bearer``, browsers log in once
and carry a signed cookie. Without a token the collector listens on loopback only, where any program of this machine may come in but no page of
a foreign site: the Host must be a name of this machine (DNS rebinding) and a browser's Origin must be our own (cross-site requests).
"""

from __future__ import annotations

import hashlib
import hmac
import time
from urllib.parse import parse_qs, quote, urlsplit

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from monitor.api.login import login_page
from monitor.settings import Settings, is_loopback

COOKIE = "vitals_session"
SESSION_S = 30 * 24 * 3600
_OPEN = ("/healthz", "/login", "/favicon.ico")
_OPEN_FOLDERS = ("/assets/", "/_dash-component-suites/", "/_favicon.ico")
_SAFE = ("GET", "HEAD", "OPTIONS")
_MAX_FORM_BYTES = 8192


class Guard:
    """The outermost layer of the application, for HTTP and WebSocket alike."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._token = settings.token.get_secret_value() if settings.token is not None else None
        self._known_hosts = {urlsplit(settings.public_url).hostname} if settings.public_url else set()
        self._secure = bool(settings.public_url and settings.public_url.startswith("https:"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(HTTPConnection(scope))
        if refusal is None and scope["type"] == "http" and self._token is not None and scope["path"] in ("/login", "/logout"):
            refusal = await self._session(Request(scope, receive), self._token)
        if refusal is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await refusal(scope, receive, send)
        else:
            # Before the handshake is accepted, this answers 403.
            await send({"type": "websocket.close", "code": 1008})

    def _refusal(self, connection: HTTPConnection) -> Response | None:
        """The answer to whoever may not come in; None for the others."""
        headers = connection.headers
        if self._token is None and not self._is_ours(headers.get("host", "")):
            return _error(403, "This collector only answers to localhost; set VITALS_PUBLIC_URL if it has another name, or VITALS_TOKEN to open it.")
        bearer = self._token is not None and _bearer(headers, self._token)
        if not bearer and _writes(connection.scope) and not _same_site(headers):
            return _error(403, "A page of another site sent this request.")
        if self._token is None or bearer or _is_open(connection.scope["path"]) or is_session(connection.cookies.get(COOKIE, ""), self._token):
            return None
        if "text/html" in headers.get("accept", "") and connection.scope.get("method") == "GET":
            return RedirectResponse(f"/login?next={quote(connection.scope['path'])}", 303)
        return _error(401, "This collector needs its token: send 'Authorization: Bearer ...' (VITALS_TOKEN).", {"WWW-Authenticate": "Bearer"})

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return is_loopback(name) or name in self._known_hosts

    async def _session(self, request: Request, token: str) -> Response | None:
        """Log in and out."""
        if request.url.path == "/logout":
            gone = RedirectResponse("/login", 303)
            gone.delete_cookie(COOKIE, path="/")
            return gone
        target = local_path(request.query_params.get("next", "/"))
        if request.method != "POST":
            return login_page(target, wrong=False)
        form = bytearray()
        async for chunk in request.stream():
            form += chunk
            if len(form) > _MAX_FORM_BYTES:
                return login_page(target, wrong=True)
        given = parse_qs(form.decode(errors="replace")).get("token", [""])[0]
        if not _equal(given.strip(), token):
            return login_page(target, wrong=True)
        answer = RedirectResponse(target, 303)
        answer.set_cookie(
            COOKIE, session(token), SESSION_S, path="/", httponly=True, samesite="lax", secure=self._secure or request.url.scheme == "https"
        )
        return answer


def session(token: str, now: float | None = None) -> str:
    """A cookie's value that proves the token was known, without holding it."""
    end = int((time.time() if now is None else now) + SESSION_S)
    return f"{end}.{_signature(token, end)}"


def is_session(value: str, token: str, now: float | None = None) -> bool:
    """Whether ``value`` came from :func:`session` with this token and has not run out."""
    end, _, signature = value.partition(".")
    if not end.isascii() or not end.isdigit() or len(end) > 15:
        return False
    return _equal(signature, _signature(token, int(end))) and int(end) > (time.time() if now is None else now)


def local_path(target: str) -> str:
    """``target`` if it is a path on this server, else the front page: a login must not send people elsewhere."""
    plain = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if plain else "/"


def _signature(token: str, end: int) -> str:
    return hmac.new(token.encode(), f"rlvitals session {end}".encode(), hashlib.sha256).hexdigest()


def _equal(left: str, right: str) -> bool:
    return hmac.compare_digest(left.encode(errors="replace"), right.encode(errors="replace"))


def _bearer(headers: Headers, token: str) -> bool:
    scheme, _, value = headers.get("authorization", "").partition(" ")
    return scheme.lower() == "bearer" and _equal(value.strip(), token)


def _writes(scope: Scope) -> bool:
    return scope["type"] == "websocket" or scope["method"] not in _SAFE


def _same_site(headers: Headers) -> bool:
    """Programs send neither header; browsers say where a request comes from."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2].lower() == headers.get("host", "").lower()


def _is_open(path: str) -> bool:
    return path in _OPEN or path.startswith(_OPEN_FOLDERS)


def _error(status: int, sentence: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": sentence, "field": None}, status, headers)
