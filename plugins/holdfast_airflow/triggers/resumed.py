"""Waits for a stream to go on with tasks that were restored, while a task is deferred."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from holdfast_airflow.hooks.holdfast import HoldfastHook
from state_lib.errors import HoldfastError

if TYPE_CHECKING:
    from state_lib.apps.resumed import Resumed
    from state_lib.config import Settings

LOOK_EVERY_S = 1.0


class StreamResumedTrigger(BaseTrigger):
    """Waits until each task commits again, or stands where the others do; or until no driver lives.

    Events: ``resumed``, and ``timed_out``; with ``text`` and what was ``kept``.

    Args:
        app: The application.
        restored: Epoch and number of the commit that each task was restored to, by its name.
        until: When to wait no longer, as wall time (s).
        conn_id: The Holdfast connection.
        env: ``HOLDFAST_*`` variables that win over it.
        kept: What the operator wants back.
        look_every_s: Seconds between looks.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what is waited for, how long, and where
        self,
        app: str,
        restored: dict[str, list[int]],
        until: float,
        conn_id: str = HoldfastHook.default_conn_name,
        env: dict[str, str] | None = None,
        kept: dict[str, Any] | None = None,
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.app, self.restored, self.until = app, restored, until
        self.conn_id, self.env, self.kept = conn_id, env or {}, kept or {}
        self.look_every_s = look_every_s
        self._known: Settings | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class and arguments, from which a triggerer makes it again."""
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        names = ("app", "restored", "until", "conn_id", "env", "kept", "look_every_s")
        return path, {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look until it is so, or the time is over; Kafka away is waited for."""
        loop, thread = asyncio.get_running_loop(), ThreadPoolExecutor(1, f"holdfast-{self.app}")
        try:
            while True:
                try:
                    seen = await loop.run_in_executor(thread, self._look)
                    text, over = seen.told(self.app), seen.is_over
                except HoldfastError as error:
                    text, over = error.message, False
                if over or time.time() > self.until:
                    said = {"event": "resumed" if over else "timed_out", "text": text}
                    yield TriggerEvent({**said, "kept": self.kept})  # type: ignore[no-untyped-call]
                    return
                await asyncio.sleep(self.look_every_s)
        finally:
            thread.shutdown(wait=False)

    def _look(self) -> Resumed:
        from state_lib.apps.resumed import look
        from state_lib.kafka import Kafka

        if self._known is None:
            self._known = HoldfastHook(self.conn_id, self.env).settings
        settings = self._known
        restored = {task: (int(at[0]), int(at[1])) for task, at in self.restored.items()}
        return look(settings, Kafka.of(settings), self.app, restored)
