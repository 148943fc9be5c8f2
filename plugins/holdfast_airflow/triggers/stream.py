"""Watches a driver while its task is deferred."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from holdfast_airflow.adoption import see_off
from holdfast_airflow.handover import ask_for_handover
from holdfast_airflow.triggers.watch import LOOK_EVERY_S, Watch
from holdfast_airflow.watched import supervising_try
from state_lib.errors import HoldfastError, Unavailable

if TYPE_CHECKING:
    from state_lib.drivers.events import Event
    from state_lib.drivers.process import DriverProcess
    from state_lib.drivers.supervision import Supervision

log = logging.getLogger(__name__)
END_S = 25.0
"""Airflow gives `on_kill` 30 s (``triggerer.on_kill_timeout``)."""
NEEDS_A_WORKER = ("restart", "gave_up", "superseded", "stopped")
ALARMS = (
    "crashed",
    "gave_up",
    "superseded",
    "stalled",
    "lag_growing",
    "kafka_away",
    "unresponsive",
    "parked",
)
TOLD_LINES = 20


class SuperviseStreamTrigger(BaseTrigger):
    """Watches one driver, tells the task's log what happens, and fires when a worker is needed.

    Events: ``restart`` (after a crash and its pause), ``gave_up``, ``superseded``, ``stopped``;
    each with ``text`` for people, ``details``, and the state of the supervision.

    A restart of the triggerer leaves the driver alone. What a user does to the task ends it: see
    `on_kill`.

    Args:
        app: The application.
        process: The driver, as `DriverProcess.to_json`.
        supervision: What is known of it, as `Supervision.to_json`.
        env: ``HOLDFAST_*`` variables that win over the triggerer's.
        submission: What the cluster calls a driver that runs inside it, as `Submission.to_json`.
        look_every_s: Seconds between looks.
    """

    def __init__(
        self,
        app: str,
        process: dict[str, Any],
        supervision: dict[str, Any],
        env: dict[str, str] | None = None,
        *,
        submission: dict[str, str] | None = None,
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.app, self.process, self.supervision = app, process, supervision
        self.env = env or {}
        self.submission, self.look_every_s = submission, look_every_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class and arguments, from which a triggerer makes it again."""
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        names = ("app", "process", "supervision", "env", "submission", "look_every_s")
        return path, {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look until a worker is needed."""
        watch = Watch(self.app, self.env, self.submission)
        told: list[str] = []
        try:
            process, supervision = await watch.call(self._known)
            while True:
                sight, alive, said = await watch.observe(process)
                now = time.time()
                for event in supervision.feed(sight, process=alive, now=now, said=said):
                    level = "warning" if event.name in ALARMS else "info"
                    getattr(self.log, level)("%s", event.text)
                    if event.name in NEEDS_A_WORKER:
                        if supervision.overdue(now):
                            await watch.call(lambda: self._see_off(process))
                        yield _fired(event, supervision, told[-TOLD_LINES:])
                        return
                    told += [event.text] if event.name != "progress" else []
                await asyncio.sleep(self.look_every_s)
        finally:
            watch.close()

    async def on_kill(self) -> None:
        """A user has cleared or marked the task: the driver stops at a batch's edge.

        Airflow calls this as well where another triggerer has taken the trigger over: then this try
        of the task is still deferred, and the driver stays. Where the next try was quicker and has
        adopted the driver already, it starts a new one when that has ended.
        """
        # Airflow cancels a trigger again every second until it has ended: only a thread gets
        # through all of it.
        await asyncio.shield(asyncio.to_thread(self._end_driver))

    # ------------------------------------------------------------------ inside

    def _known(self) -> tuple[DriverProcess, Supervision]:
        from state_lib.drivers.process import DriverProcess
        from state_lib.drivers.supervision import Supervision

        return DriverProcess.from_json(self.process), Supervision.from_json(self.supervision)

    def _see_off(self, process: DriverProcess) -> None:
        try:
            see_off(process, self.log, waited=True)
        except Unavailable as error:
            self.log.warning("%s", error.message)

    def _end_driver(self) -> None:
        from state_lib.drivers.process import DriverProcess

        if self._is_deferred():
            self.log.info("The task is still deferred: its driver goes on")
            return
        process = DriverProcess.from_json(self.process)
        deadline = time.monotonic() + END_S
        while not self._ask():
            # Kafka is away; or this is the first driver ever, and nothing is there to ask in.
            if process.here:
                process.end(END_S)
                break
            if time.monotonic() > deadline:
                where = f": process {process.pid} on {process.host}" if process.pid else ""
                self.log.error(
                    "The driver of %s was NOT asked to stop and runs on%s. Once Kafka answers "
                    "again: holdfast stop %s",
                    self.app,
                    where,
                    self.app,
                )
                return
            time.sleep(self.look_every_s)
        self.log.info("The driver of %s stops at a batch's edge", self.app)

    def _ask(self) -> bool:
        """Ask through Kafka; whether that was possible."""
        try:
            ask_for_handover(self.app, self.env, self.task_instance)
        except HoldfastError as error:
            self.log.warning("Could not ask through Kafka: %s", error.message)
            return False
        return True

    def _is_deferred(self) -> bool:
        """Whether this try of the task is deferred now, by Airflow's API."""
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance  # noqa: PLC0415

        ti = self.task_instance
        if ti is None:
            return False
        try:
            states: dict[str, Any] = RuntimeTaskInstance.get_task_states(
                dag_id=ti.dag_id, task_ids=[ti.task_id], run_ids=[ti.run_id]
            )
            known = supervising_try(self.app)
        except Exception:
            # A stop by mistake is mended by whoever supervises then; a driver left is by nobody.
            self.log.warning("Airflow did not say how the task stands", exc_info=True)
            return False
        state = states.get(ti.run_id, {}).get(ti.task_id)
        return str(state) == "deferred" and known in (None, ti.try_number)


def _fired(event: Event, supervision: Supervision, told: list[str]) -> TriggerEvent:
    # Airflow empties the log of a try's trigger when the task defers again [tried]: the worker
    # writes into its own what must not be lost.
    said = {"event": event.name, "text": event.text, "details": event.details, "told": told}
    return TriggerEvent({**said, "supervision": supervision.to_json()})  # type: ignore[no-untyped-call]
