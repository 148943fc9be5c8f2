"""Waits for the end of a stream while a task is deferred."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from holdfast_airflow.settings import settings_of
from holdfast_airflow.triggers.watch import LOOK_EVERY_S, Watch

if TYPE_CHECKING:
    from state_lib.drivers.here import Here
    from state_lib.drivers.sight import Sight


class StreamEndTrigger(BaseTrigger):
    """Waits until no driver of an application lives.

    Events: ``stopped``, and ``timed_out`` if one lives still when the time is over; with ``text``.

    Args:
        app: The application.
        env: ``HOLDFAST_*`` variables that win over the triggerer's.
        until: When to wait no longer, as wall time (s); None: never.
        look_every_s: Seconds between looks.
    """

    def __init__(
        self,
        app: str,
        env: dict[str, str] | None = None,
        until: float | None = None,
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.app, self.env, self.until, self.look_every_s = app, env or {}, until, look_every_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class and arguments, from which a triggerer makes it again."""
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        names = ("app", "env", "until", "look_every_s")
        return path, {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look until Kafka's group is empty: a killed driver leaves it after 6 s.

        A driver that has just been launched on this machine is waited for as well: it joins late.
        """
        watch = Watch(self.app, self.env)
        try:
            here = await watch.call(self._here)
            while True:
                sight, _, _ = await watch.observe(None)
                living, quiet = sight.drivers, sight.away is None and not sight.drivers
                if quiet:
                    living = await watch.call(partial(here.drivers, sight))
                if quiet and not living:
                    said = {"event": "stopped", "text": f"no driver of {self.app} runs"}
                    yield TriggerEvent(said)  # type: ignore[no-untyped-call]
                    return
                if self.until is not None and time.time() > self.until:
                    said = {"event": "timed_out", "text": self._late(sight, living)}
                    yield TriggerEvent(said)  # type: ignore[no-untyped-call]
                    return
                await asyncio.sleep(self.look_every_s)
        finally:
            watch.close()

    def _here(self) -> Here:
        from state_lib.drivers.here import Here

        return Here(settings_of(self.env), self.app)

    def _late(self, sight: Sight, living: tuple[str, ...]) -> str:
        if sight.away is not None:
            return f"it cannot be known whether {self.app} has stopped: {sight.away}"
        driver = living[-1]
        where = "" if sight.facts is None else f" (process {sight.facts.pid} on {sight.facts.host})"
        return (
            f"driver {driver} of {self.app}{where} was asked to stop and has not come to a batch's"
            " edge in time; it stops when it does. Look at its log, or wait for longer"
        )
