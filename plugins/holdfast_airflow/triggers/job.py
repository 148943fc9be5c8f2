"""Waits for the report of a job while its task is deferred."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from holdfast_airflow.jobs import SILENT_S, Job, Seen, Vigil
from state_lib.errors import HoldfastError

log = logging.getLogger(__name__)
LOOK_EVERY_S = 2.0
ANSWER_S = 30.0
"""How long a look at storage may take."""
END_S = 25.0
"""Airflow gives `on_kill` 30 s (``triggerer.on_kill_timeout``)."""
TOLD_LINES = 20


class JobTrigger(BaseTrigger):
    """Waits until a launched job has written its report, or will not any more.

    Events: ``ended`` (its record has the result or the error), ``died``, ``lost`` (on another
    machine: it is silent), ``timed_out``; each with ``text``, and ``told``: what was said before.

    A restart of the triggerer leaves the job alone. What a user does to the task ends it.

    Args:
        job: as `Job.to_json`.
        until: when to wait no longer, as wall time (s).
        look_every_s: seconds between looks.
    """

    def __init__(
        self, job: dict[str, Any], until: float, look_every_s: float = LOOK_EVERY_S
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.job, self.until, self.look_every_s = job, until, look_every_s
        self._asking: asyncio.Future[Seen] | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class and arguments, from which a triggerer makes it again."""
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        return path, {name: getattr(self, name) for name in ("job", "until", "look_every_s")}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look until there is something to tell."""
        job, vigil, told = Job.from_json(self.job), Vigil(time.monotonic()), list[str]()
        loop = asyncio.get_running_loop()
        # Storage that hangs holds up neither Airflow's other triggers nor the end of this one.
        threads = ThreadPoolExecutor(3, thread_name_prefix=f"holdfast-{job.kind}-{job.app}")
        try:
            while True:
                seen = await self._look(job, threads)
                self._tell(job, seen, told)
                what: str | None = vigil.feed(seen, time.monotonic())
                if what is None and time.time() > self.until:
                    what = "timed_out"
                    await asyncio.wait({loop.run_in_executor(threads, _end, job)}, timeout=END_S)
                if what is not None:
                    text = await loop.run_in_executor(threads, _text, job, seen, what)
                    said = {"event": what, "text": text, "told": told[-TOLD_LINES:]}
                    yield TriggerEvent({**said, "job": self.job})  # type: ignore[no-untyped-call]
                    return
                await asyncio.sleep(self.look_every_s)
        finally:
            threads.shutdown(wait=False)

    async def on_kill(self) -> None:
        """A user has cleared or marked the task: the job is ended.

        Airflow calls this as well where another triggerer has taken the trigger over, or the next
        try was quicker: then the task is deferred, and the job stays.
        """
        # Airflow cancels a trigger again every second until it has ended: only a thread gets
        # through all of it.
        await asyncio.shield(asyncio.to_thread(self._end_job))

    # ------------------------------------------------------------------ inside

    async def _look(self, job: Job, threads: ThreadPoolExecutor) -> Seen:
        """A look; one that takes too long shows nothing, and the next waits for it."""
        if self._asking is None:
            self._asking = asyncio.get_running_loop().run_in_executor(threads, job.look)
        done, _ = await asyncio.wait({self._asking}, timeout=ANSWER_S)
        if not done:
            return Seen(None, None, f"{job.url} has not answered for {ANSWER_S:.0f} s and more")
        asked, self._asking = self._asking, None
        return asked.result()

    def _tell(self, job: Job, seen: Seen, told: list[str]) -> None:
        """Log what is new."""
        line = f"{job.kind} of {job.app}: {seen.record.phase}" if seen.record else seen.away
        if line and (not told or told[-1] != line):
            told.append(line)
            self.log.info("%s", line)

    def _end_job(self) -> None:
        if self._is_deferred():
            self.log.info("The task is still deferred: its job goes on")
            return
        _end(Job.from_json(self.job))

    def _is_deferred(self) -> bool:
        """Whether the task is deferred now, by Airflow's API; it is where that does not say."""
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance  # noqa: PLC0415

        ti = self.task_instance
        if ti is None:
            return False
        try:
            states: dict[str, Any] = RuntimeTaskInstance.get_task_states(
                dag_id=ti.dag_id, task_ids=[ti.task_id], run_ids=[ti.run_id]
            )
        except Exception:
            # A job that goes on by mistake is adopted, or ends by itself.
            self.log.warning("Airflow did not say how the task stands", exc_info=True)
            return True
        return str(states.get(ti.run_id, {}).get(ti.task_id)) == "deferred"


def _end(job: Job) -> None:
    try:
        job.end(END_S)
    except HoldfastError as error:
        log.warning("The %s of %s (%s) goes on: %s", job.kind, job.app, job.place, error.message)


def _text(job: Job, seen: Seen, what: str) -> str:
    name = f"the {job.kind} of {job.app} ({job.place})"
    if what == "ended":
        return f"{name} has ended"
    if what == "timed_out":
        doing = seen.record.phase if seen.record else "has not begun"
        over = "was ended" if job.as_process().here else "was asked to end"
        return f"{name} took too long ({doing}) and {over}. Give the task more `patience`"
    file = job.process["log"]
    if what == "died":
        tail = " | ".join(job.as_process().last_lines(8))
        return f"{name} ended without a word; the end of its log {file}: {tail or '(nothing)'}"
    if seen.record is None:
        return (
            f"{name} is not heard of in {job.url}. Workers and triggerers must see the same "
            f"HOLDFAST_REPORTS_URL; else look at its log there, {file}"
        )
    return f"{name} has been silent for {SILENT_S:.0f} s: that machine is lost, or {job.url} is"
