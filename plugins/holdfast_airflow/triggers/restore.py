"""Follows restores while their task is deferred."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from holdfast_airflow.hooks.holdfast import HoldfastHook
from holdfast_airflow.plans import plans_of
from state_lib.errors import HoldfastError

if TYPE_CHECKING:
    from state_lib.apps.restore_watch import Followed, RestoreWatch

LOOK_EVERY_S = 0.5
TELL_EVERY_S = 5.0
TOLD_LINES = 40


class RestoreTrigger(BaseTrigger):
    """Has hosts carry out plans and looks, over HTTP, until all have ended.

    The event has ``restores``, each with ``task``, ``source``, ``state`` (``done``, ``stale`` or
    ``failed``), ``why``, ``records``, ``seconds``, ``marker``; ``told``, the last lines of log; and
    ``kept`` as it was given. A restart of the triggerer loses nothing: the same plans are met
    again. If its task is cleared or marked, hosts go on.

    Args:
        app: The application.
        plans: As `RestorePlan.to_json`.
        conn_id: The Holdfast connection.
        env: ``HOLDFAST_*`` variables that win over it.
        kept: What the operator wants back.
        look_every_s: Seconds between looks.
    """

    def __init__(
        self,
        app: str,
        plans: list[dict[str, Any]],
        conn_id: str = HoldfastHook.default_conn_name,
        env: dict[str, str] | None = None,
        kept: dict[str, Any] | None = None,
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.app, self.plans, self.conn_id, self.env = app, plans, conn_id, env or {}
        self.kept, self.look_every_s = kept or {}, look_every_s
        self._told: list[str] = []
        self._told_at: dict[str, tuple[str, float]] = {}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class and arguments, from which a triggerer makes it again."""
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        names = ("app", "plans", "conn_id", "env", "kept", "look_every_s")
        return path, {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look until all have ended."""
        loop, thread = asyncio.get_running_loop(), ThreadPoolExecutor(1, f"holdfast-{self.app}")
        watch: RestoreWatch | None = None
        try:
            watch = await loop.run_in_executor(thread, self._made)
            while not watch.over:
                for one in await loop.run_in_executor(thread, watch.look):
                    self._tell(one)
                if not watch.over:
                    await asyncio.sleep(self.look_every_s)
            yield self._fired([one.to_json() for one in watch.followed])
        except HoldfastError as error:  # a wrong setting, before the first look
            states = {"state": "failed", "why": error.message}
            yield self._fired([{"task": one["task"], **states} for one in self.plans])
        finally:
            if watch is not None:
                thread.submit(watch.close)
            thread.shutdown(wait=False)

    # ------------------------------------------------------------------ inside

    def _made(self) -> RestoreWatch:
        from state_lib.apps.restore_watch import RestoreWatch

        settings = HoldfastHook(self.conn_id, self.env).settings
        return RestoreWatch(settings, self.app, plans_of(self.plans))

    def _tell(self, one: Followed) -> None:
        """What is new at once, progress now and then."""
        what, now = f"{one.state} {one.why}", time.monotonic()
        before, at = self._told_at.get(one.plan.task, ("", 0.0))
        if what == before and now - at < TELL_EVERY_S:
            return
        self._told_at[one.plan.task] = (what, now)
        level = "warning" if one.why else "info"
        getattr(self.log, level)("%s", one.told())
        self._told = [*self._told, one.told()][-TOLD_LINES:]

    def _fired(self, restores: list[dict[str, Any]]) -> TriggerEvent:
        # Airflow empties the log of a try's trigger when the task defers again: the worker writes
        # into its own what must not be lost.
        said = {"restores": restores, "told": self._told, "kept": self.kept}
        return TriggerEvent(said)  # type: ignore[no-untyped-call]
