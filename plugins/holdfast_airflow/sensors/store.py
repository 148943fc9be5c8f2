"""Waits until stores of an application are lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.triggers.base import BaseTrigger, TriggerEvent

from holdfast_airflow.hooks.holdfast import HoldfastHook
from state_lib.errors import HoldfastError

if TYPE_CHECKING:
    from airflow.sdk import Context

LOOK_EVERY_S = 1.0


class StoreLostSensor(BaseOperator):
    """Finishes when stores of tasks are lost or corrupt.

    Args:
        app: The application's id.
        conn_id: The Holdfast connection.
        env: ``HOLDFAST_*`` variables that win over it.

    Returns (as XCom): names of the tasks, ``<app>/<partition>``.
    """

    template_fields: Sequence[str] = ("app", "conn_id", "env")

    def __init__(
        self,
        *,
        app: str,
        conn_id: str = HoldfastHook.default_conn_name,
        env: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.app, self.conn_id, self.env = app, conn_id, env or {}

    def execute(self, context: Context) -> list[str]:
        """Defer."""
        del context
        self.defer(trigger=StoreLostTrigger(self.app, self.conn_id, self.env), method_name="sensed")
        raise AssertionError

    def sensed(self, context: Context, event: dict[str, Any]) -> list[str]:
        """Which ones."""
        del context
        tasks: list[str] = event["tasks"]
        return tasks


class StoreLostTrigger(BaseTrigger):
    """Looks at all hosts until a task is quarantined."""

    def __init__(self, app: str, conn_id: str, env: dict[str, str] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.app, self.conn_id, self.env = app, conn_id, env or {}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class and arguments."""
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        return path, {"app": self.app, "conn_id": self.conn_id, "env": self.env}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look until one is."""
        loop, thread = asyncio.get_running_loop(), ThreadPoolExecutor(1)
        try:
            while True:
                if lost := await loop.run_in_executor(thread, self._look):
                    break
                await asyncio.sleep(LOOK_EVERY_S)
            yield TriggerEvent({"tasks": lost})  # type: ignore[no-untyped-call]
        finally:
            thread.shutdown(wait=False)

    def _look(self) -> list[str]:
        from state_lib.client.http import HostHttp, encoded

        settings = HoldfastHook(self.conn_id, self.env).settings
        lost: list[str] = []
        for address in settings.host_addresses:
            with closing(HostHttp(address, settings.read_token(), 5.0)) as host:
                try:
                    tasks = host.get(f"/v1/apps/{encoded(self.app)}/stores", patient=False)["tasks"]
                except HoldfastError:
                    continue
            lost += [one["task"] for one in tasks if one["state"] == "quarantined"]
        return sorted(lost)
