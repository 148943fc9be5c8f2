"""The HTTP side of a host (first cut; queries follow)."""

from __future__ import annotations

import threading
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.responses import JSONResponse

from state_lib.addresses import HostAddress
from state_lib.host.tasks import TaskManager


class HttpServer:
    """uvicorn in a thread."""

    def __init__(self, tasks: TaskManager, address: HostAddress, token: str | None) -> None:
        app = FastAPI(title="Holdfast host")

        @app.get("/livez")
        def livez() -> dict[str, str]:
            return {"status": "alive"}

        @app.get("/readyz")
        def readyz() -> Any:
            waiting = tasks.not_ready
            return JSONResponse({"not_ready": waiting}, 503 if waiting else 200)

        config = uvicorn.Config(app, host=address.host, port=address.http_port, log_level="warning")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, name="http", daemon=True)

    def start(self) -> None:
        """Serve."""
        self._thread.start()

    def stop(self) -> None:
        """Stop serving."""
        self._server.should_exit = True
        self._thread.join(5)
