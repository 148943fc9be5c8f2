"""uvicorn in a thread."""

from __future__ import annotations

import threading
import time

import uvicorn

from state_lib.errors import Unavailable
from state_lib.host.http.app import create_app
from state_lib.host.metrics import HostMetrics
from state_lib.host.tasks import TaskManager
from state_lib.protocol.addresses import HostAddress

START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 5.0


class HttpServer:
    """Health, metrics and queries of a host, on the host's own address only.

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
        except SystemExit:  # uvicorn's way to say that it cannot bind
            return
