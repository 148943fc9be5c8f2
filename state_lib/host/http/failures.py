"""Errors as HTTP answers: ``{"code", "message", "details"}`` and the status of their class."""

from __future__ import annotations

from typing import Any

import orjson
import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from state_lib.errors import HoldfastError, InvalidRequest, NotFound, NotOwner
from state_lib.host.http.owners import MISDIRECTED, Owners
from state_lib.host.tasks import TaskManager

log = structlog.get_logger(__name__)
RETRY_AFTER_S = 1
_UNAVAILABLE, _UNAUTHORIZED, _NOT_FOUND = 503, 401, 404


def answer(body: Any, status: int = 200, **headers: str) -> Response:
    """A JSON body; header names with underscores for dashes."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(orjson.dumps(body, default=str), status, named, "application/json")


def error_answer(error: HoldfastError, status: int | None = None) -> Response:
    """An error's body, its class's status unless another is given, and the headers that go with."""
    status = status or error.http_status
    headers = {}
    if status == _UNAVAILABLE:
        headers["Retry_After"] = str(RETRY_AFTER_S)
    if status == _UNAUTHORIZED:
        headers["WWW_Authenticate"] = "Bearer"
    return answer(error.to_wire(), status, **headers)


def handle_failures(app: FastAPI, tasks: TaskManager, owners: Owners) -> None:
    """Give every failure of the application the one form; no traceback leaves the host.

    For what another host owns, that one is asked.
    """

    @app.exception_handler(HoldfastError)
    async def ours(request: Request, error: HoldfastError) -> Response:
        try:
            theirs = await owners.answer(request, error)
        except HoldfastError as failure:
            return error_answer(failure)
        if theirs is not None:
            return theirs
        if isinstance(error, NotOwner):
            urls = {host.id: host.http_url for host in tasks.hosts}
            error.details["url"] = urls.get(str(error.details.get("owner")))
            return error_answer(error, MISDIRECTED)
        return error_answer(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        wrong = [
            {"where": ".".join(map(str, e["loc"])), "why": e["msg"], "seen": e.get("input")}
            for e in error.errors()
        ]
        text = "; ".join(f"{w['where']}: {w['why']}, not {w['seen']!r}" for w in wrong)
        return error_answer(InvalidRequest(text, wrong=wrong))

    @app.exception_handler(HTTPException)
    async def routing(request: Request, error: HTTPException) -> Response:
        at = request.url.path
        if error.status_code == _NOT_FOUND:
            return error_answer(NotFound(f"nothing is at {at!r}; see /openapi.json", path=at))
        why = f"{request.method} {at!r}: {error.detail}; see /openapi.json"
        return error_answer(InvalidRequest(why, path=at), error.status_code)

    @app.exception_handler(Exception)
    async def others(request: Request, error: Exception) -> Response:
        log.error("request failed", path=request.url.path, why=repr(error))
        return error_answer(HoldfastError("the request failed; the host's log says why"))
