"""Every error as ``{"error": one sentence, "field": what is wrong}`` under a status that says whether trying again can help."""

from __future__ import annotations

import logging
import time
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from monitor.api.parse import NotJson, TooLarge
from monitor.api.prometheus import Intake
from monitor.store.checks import BadField
from monitor.store.database import DatabaseUnreachable, is_bad_value, is_unreachable
from monitor.store.ingest import UnknownRun
from monitor.wire import API

RETRY_AFTER_S = 2
_log = logging.getLogger(__name__)


def error(status: int, sentence: str, field: str | None = None, headers: dict[str, str] | None = None) -> JSONResponse:
    """The one shape of an error."""
    return JSONResponse({"error": sentence, "field": field}, status, headers)


def busy(sentence: str) -> JSONResponse:
    """Not now: 503 with the seconds to wait."""
    return error(503, sentence, headers={"Retry-After": str(RETRY_AFTER_S)})


def install(app: FastAPI, intake: Intake) -> None:
    """Makes ``app`` answer every exception in this shape."""

    complain = _Seldom()

    async def bad_field(_: Request, problem: BadField) -> Response:
        return error(422, f"{problem.field}: {problem.reason}.", problem.field)

    async def not_json(_: Request, problem: NotJson) -> Response:
        return error(400, str(problem), "body")

    async def too_large(_: Request, problem: TooLarge) -> Response:
        return error(413, str(problem), "body", {"Connection": "close"})

    async def unknown_run(_: Request, problem: UnknownRun) -> Response:
        return error(404, str(problem), problem.field)

    async def unreachable(_: Request, problem: Exception) -> Response:
        complain((str(problem).splitlines() or [type(problem).__name__])[0])
        return busy("The database cannot be reached; nothing of this request is stored, send it again.")

    async def database_failed(request: Request, problem: OSError | DBAPIError) -> Response:
        if is_unreachable(problem):
            return await unreachable(request, problem)
        if isinstance(problem, DBAPIError) and request.method == "GET" and is_bad_value(problem):
            return error(422, "A parameter holds a value that the database cannot take.")
        raise problem

    async def hung_up(_: Request, problem: ClientDisconnect) -> Response:
        return error(400, "The connection closed before the body was complete.", "body")

    async def no_connection_free(_: Request, problem: PoolTimeout) -> Response:
        return busy("The collector is overloaded; nothing of this request is stored, send it again.")

    async def status(request: Request, problem: HTTPException) -> Response:
        missing = problem.status_code == 404 and problem.detail == "Not Found"
        sentence = f"There is nothing at {request.url.path[:80]}; {API}/openapi.json lists what there is." if missing else str(problem.detail)
        return error(problem.status_code, sentence, headers=dict(problem.headers or {}))

    async def invalid(_: Request, problem: RequestValidationError) -> Response:
        first = problem.errors()[0]
        field = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
        return error(422, f"{field}: {first['msg'][0].lower()}{first['msg'][1:]}.", field)

    async def unexpected(_: Request, problem: Exception) -> Response:
        return error(500, "The collector failed on this request; its log says why.")

    handlers: dict[type[Exception], Any] = {
        BadField: bad_field,
        NotJson: not_json,
        TooLarge: too_large,
        UnknownRun: unknown_run,
        DatabaseUnreachable: unreachable,
        DBAPIError: database_failed,
        OSError: database_failed,
        ClientDisconnect: hung_up,
        PoolTimeout: no_connection_free,
        HTTPException: status,
        RequestValidationError: invalid,
        Exception: unexpected,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, _counting(handler, intake))


class _Seldom:
    """Logs a warning at most every ten seconds: while the database is away, every request fails."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, sentence: str) -> None:
        if (now := time.monotonic()) >= self._next:
            self._next = now + 10
            _log.warning("%s", sentence)


def _counting(handler: Any, intake: Intake) -> Any:
    async def counted(request: Request, problem: Exception) -> Response:
        answer: Response = await handler(request, problem)
        if request.method == "POST":
            intake.count_refused_request(answer.status_code)
        return answer

    return counted
