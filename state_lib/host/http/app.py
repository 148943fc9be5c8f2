"""The FastAPI application of a host."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.security import HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST

from state_lib.host.http import listing, models, queries
from state_lib.host.http.failures import answer, handle_failures
from state_lib.host.http.lookup import Tasks
from state_lib.host.http.middleware import TRUSTED, BearerToken, WellFormed
from state_lib.host.http.owners import Owners
from state_lib.host.metrics import HostMetrics
from state_lib.host.tasks import TaskManager

_ABOUT = """State stores of Holdfast, as Kafka Streams' interactive queries.

Answers hold committed state only, and `position`: by task, the marker at which it was read. Any
host answers for any key: it asks the key's owner. Ranges, counts and lists are those of the tasks
that a host owns: ask every host. `state_lib.client.query` and the command `holdfast query` do so
by themselves.
"""
_FAILURES: dict[int | str, dict[str, Any]] = {
    400: {"model": models.Failure, "description": "A name, key, time, limit or cursor is wrong."},
    401: {"model": models.Failure, "description": "No bearer token, or not the configured one."},
    404: {"model": models.Failure, "description": "Unknown application, store or key."},
    421: {"model": models.Failure, "description": "A task of another host, which details name."},
    503: {
        "model": models.Failure,
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
        docs_url=None,  # its page would be loaded from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        lifespan=owners.connected,
    )
    app.state.tasks = tasks
    app.state.metrics = metrics
    app.include_router(_health)
    for router in (listing.router, queries.router):
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
    app.add_middleware(BearerToken, token=token)  # the last one added comes first
    return app


@_health.get("/livez", summary="Whether the process answers; needs no token")
async def livez() -> dict[str, str]:
    """Never waits for tasks: a host that restores is alive."""
    return {"status": "alive"}


@_health.get(
    "/readyz",
    summary="Whether every task is open; names tasks and reasons only to who has the token",
    response_model=models.Ready,
    responses={503: {"model": models.Ready, "description": "Some task is not open."}},
)
async def readyz(request: Request, tasks: Tasks) -> Response:
    """503 otherwise, with the reason per task: names and paths, so not for everybody."""
    waiting = tasks.not_ready
    named = waiting if request.scope[TRUSTED] else {}
    body = {"waiting": len(waiting), "not_ready": named}
    if waiting:
        return answer({"status": "not ready", **body}, 503, Retry_After="1")
    return answer({"status": "ready", **body})
