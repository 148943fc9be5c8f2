"""Watches drivers while their tasks are deferred."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.triggers.base import BaseTrigger, TriggerEvent

from holdfast_airflow.adoption import see_off
from holdfast_airflow.handover import ask_for_handover
from holdfast_airflow.settings import settings_of
from holdfast_airflow.watched import supervising_try
from state_lib.errors import HoldfastError, Unavailable

if TYPE_CHECKING:
    from state_lib.drivers.events import Event
    from state_lib.drivers.look import Looker
    from state_lib.drivers.process import DriverProcess
    from state_lib.drivers.sight import Sight
    from state_lib.drivers.supervision import Supervision

T = TypeVar("T")
log = logging.getLogger(__name__)
LOOK_EVERY_S = 1.5
ASK_CLUSTER_EVERY_S = 15.0
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
)
TOLD_LINES = 20


class Watch:
    """Looks at an application from a thread of its own: Kafka's clients are for one thread."""

    def __init__(
        self, app: str, env: dict[str, str], submission: dict[str, str] | None = None
    ) -> None:
        self._app, self._env, self._submission = app, env, submission
        self._active: bool | None = None
        self._asked_at = float("-inf")
        self._looker: Looker | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"holdfast-{app}")

    async def call(self, function: Callable[[], T]) -> T:
        """Run a function in the thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    async def observe(self, process: DriverProcess | None) -> tuple[Sight, bool | None, list[str]]:
        """A look, whether the process lives, and its log's end if it does not."""

        def look() -> tuple[Sight, bool | None, list[str]]:
            from state_lib.drivers.look import observe

            active = self._active_in_cluster()
            sight, alive = observe(self._made(), process)
            alive = active if alive is None else alive
            said = process.last_lines() if process is not None and not alive else []
            return sight, alive, said

        return await self.call(look)

    def close(self) -> None:
        """Free clients and thread, after the look that is under way; does not wait."""
        if self._looker is not None:
            self._thread.submit(self._looker.close)
        self._thread.shutdown(wait=False)

    def _active_in_cluster(self) -> bool | None:
        """What the cluster says of the driver; None where there is none, or it does not say."""
        if self._submission is None or time.monotonic() - self._asked_at < ASK_CLUSTER_EVERY_S:
            return self._active
        from holdfast_airflow.hooks.cluster import Submission  # noqa: PLC0415

        self._asked_at = time.monotonic()
        self._active = Submission(**self._submission).seen()
        return self._active

    def _made(self) -> Looker:
        from state_lib.drivers.look import Looker

        if self._looker is None:
            self._looker = Looker(settings_of(self._env), self._app)
        return self._looker


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
        from state_lib.drivers.process import DriverProcess
        from state_lib.drivers.supervision import Supervision

        process = DriverProcess.from_json(self.process)
        supervision = Supervision.from_json(self.supervision)
        watch = Watch(self.app, self.env, self.submission)
        told: list[str] = []
        try:
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
        from state_lib.drivers.here import Here

        here, watch = Here(settings_of(self.env), self.app), Watch(self.app, self.env)
        try:
            while True:
                sight, _, _ = await watch.observe(None)
                living, quiet = sight.drivers, sight.away is None and not sight.drivers
                if quiet:
                    living = await watch.call(partial(here.living, sight))
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

    def _late(self, sight: Sight, living: tuple[str, ...]) -> str:
        if sight.away is not None:
            return f"it cannot be known whether {self.app} has stopped: {sight.away}"
        driver = living[-1]
        where = "" if sight.facts is None else f" (process {sight.facts.pid} on {sight.facts.host})"
        return (
            f"driver {driver} of {self.app}{where} was asked to stop and has not come to a batch's"
            " edge in time; it stops when it does. Look at its log, or wait for longer"
        )
