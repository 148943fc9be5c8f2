"""The FastAPI application of a host, what every request passes before any route, its server."""

from __future__ import annotations

import hmac
import threading
import time
from typing import Any
from urllib.parse import unquote_to_bytes

import uvicorn
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.security import HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.types import ASGIApp, Receive, Scope, Send

from state_lib.errors import InvalidRequest, Unauthorized, Unavailable
from state_lib.host.http import answers, routes
from state_lib.host.http.failures import answer, error_answer, handle_failures
from state_lib.host.http.owners import Owners
from state_lib.host.http.parameters import Tasks
from state_lib.host.metrics import HostMetrics
from state_lib.host.tasks import TaskManager
from state_lib.protocol.addresses import HostAddress

_ABOUT = """State stores of Holdfast, as Kafka Streams' interactive queries.

Answers hold committed state only, and `position`: by task, the marker at which it was read. Any
host answers for any key: it asks the key's owner. Ranges, counts and lists are those of the tasks
that a host owns: ask every host. `state_lib.client.query` and the command `holdfast query` do so
by themselves.
"""
OPEN = frozenset({"/livez", "/readyz", "/openapi.json"})
"""Paths without a token: they show nothing of any state. All others need one, known or not."""
TRUSTED = "holdfast.trusted"
"""In a request's scope: whether it came with the token, or none is configured."""
START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 5.0
_FAILURES: dict[int | str, dict[str, Any]] = {
    400: {"model": answers.Failure, "description": "A name, key, time, limit or cursor is wrong."},
    401: {"model": answers.Failure, "description": "No bearer token, or not the configured one."},
    404: {"model": answers.Failure, "description": "Unknown application, store or key."},
    421: {"model": answers.Failure, "description": "A task of another host, which details name."},
    503: {
        "model": answers.Failure,
        "description": "A task is opening or restoring, or its owner is away; try again.",
    },
}
# Only describes: `BearerToken` checks, before any route is looked for.
_DESCRIBED = Depends(HTTPBearer(auto_error=False, description="Where a token is configured."))
_health = APIRouter(tags=["health"])


def create_app(tasks: TaskManager, token: str | None, metrics: HostMetrics) -> FastAPI:
    """Everything that a host answers over HTTP.

    Args:
        tasks: of this host.
        token: required for all but liveness, readiness and the description, and shown to other
            hosts; None: no token.
        metrics: what /metrics shows.
    """
    owners = Owners(tasks, token)
    app = FastAPI(
        title="Holdfast host",
        description=_ABOUT,
        version="1",
        docs_url=None,  # that page loads scripts from the internet
        redoc_url=None,
        redirect_slashes=False,
        lifespan=owners.connected,
    )
    app.state.tasks = tasks
    app.state.metrics = metrics
    app.include_router(_health)
    for router in (routes.listing, routes.queries):
        app.include_router(router, prefix="/v1", responses=_FAILURES, dependencies=[_DESCRIBED])

    @app.get(
        "/metrics",
        tags=["health"],
        summary="Prometheus metrics",
        dependencies=[_DESCRIBED],
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}}, 401: _FAILURES[401]},
    )
    def prometheus() -> Response:
        return Response(metrics.render(), media_type=CONTENT_TYPE_LATEST)

    handle_failures(app, tasks, owners)
    app.add_middleware(WellFormed)
    app.add_middleware(BearerToken, token=token)  # the last one added runs first
    return app


@_health.get("/livez", summary="Whether the process answers; needs no token")
async def livez() -> dict[str, str]:
    """Never waits for tasks: a host that restores is alive."""
    return {"status": "alive"}


@_health.get(
    "/readyz",
    summary="Whether every task is open; names tasks and reasons only to who has the token",
    response_model=answers.Ready,
    responses={503: {"model": answers.Ready, "description": "Some task is not open."}},
)
async def readyz(request: Request, tasks: Tasks) -> Response:
    """503 otherwise, with the reason per task: names and paths, so not for everybody."""
    waiting = tasks.not_ready
    named = waiting if request.scope[TRUSTED] else {}
    body = {"waiting": len(waiting), "not_ready": named}
    if waiting:
        return answer({"status": "not ready", **body}, 503, Retry_After="1")
    return answer({"status": "ready", **body})


class BearerToken:
    """Refuses requests without the token; with None every request passes.

    Args:
        app: what lies behind.
        token: the configured one.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._expected = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401."""
        trusted = scope["type"] != "http" or self._allowed(scope)
        scope[TRUSTED] = trusted
        if trusted or scope["path"] in OPEN:
            await self._app(scope, receive, send)
            return
        refusal = Unauthorized(
            "a bearer token is required: send 'Authorization: Bearer …' with the token of "
            "HOLDFAST_TOKEN or HOLDFAST_TOKEN_FILE"
        )
        await error_answer(refusal)(scope, receive, send)

    def _allowed(self, scope: Scope) -> bool:
        if self._expected is None:
            return True
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, token = (given[0] if len(given) == 1 else b"").partition(b" ")
        return hmac.compare_digest(token, self._expected) and scheme.lower() == b"bearer"


class WellFormed:
    """Refuses paths and queries that are not UTF-8: they would be read as other keys."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 400."""
        if scope["type"] == "http":
            try:
                for raw in (scope["raw_path"], scope["query_string"]):
                    unquote_to_bytes(raw).decode()
            except UnicodeDecodeError as error:
                refusal = InvalidRequest(
                    f"path and query must be percent-encoded UTF-8: {error}; keys of a store with "
                    "serde 'bytes' are written in hexadecimal"
                )
                await error_answer(refusal)(scope, receive, send)
                return
        await self._app(scope, receive, send)


class HttpServer:
    """Health, metrics and queries of a host, on its own address only: uvicorn in a thread.

    Args:
        tasks: of this host.
        address: what to bind to.
        token: see `create_app`.
        metrics: as given to the tasks' context as their listener; None: a new one, in which
            restores and commits of these tasks do not count.
    """

    def __init__(
        self,
        tasks: TaskManager,
        address: HostAddress,
        token: str | None,
        metrics: HostMetrics | None = None,
    ) -> None:
        metrics = metrics or HostMetrics()
        metrics.watch(tasks)
        self.app = create_app(tasks, token, metrics)
        self._address = address
        config = uvicorn.Config(
            self.app,
            host=address.host,
            port=address.http_port,
            log_level="warning",
            access_log=False,
            ws="none",
            lifespan="on",
            server_header=False,
            timeout_graceful_shutdown=int(STOP_TIMEOUT_S),
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        """Serve; returns once requests are answered.

        Raises:
            Unavailable: the address cannot be bound to; uvicorn has logged why.
        """
        self._thread.start()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._server.started:
            self._thread.join(0.01)
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise Unavailable(
                    f"HTTP on {self._address.http_url} did not start; free the port, or change "
                    "HOLDFAST_HOSTS",
                    url=self._address.http_url,
                )

    def stop(self) -> None:
        """Answer open requests, at most `STOP_TIMEOUT_S` s, and no more."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(2 * STOP_TIMEOUT_S)

    def _run(self) -> None:
        try:
            self._server.run()
        except SystemExit:  # uvicorn raises it if it cannot bind
            return
