"""Has snapshots taken and looks at them while a task is deferred."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from holdfast_airflow.hooks.holdfast import HoldfastHook, settings_while_there
from holdfast_airflow.triggers.told import when_told
from holdfast_airflow.triggers.watch import LOOK_EVERY_S, Watch
from state_lib.errors import HoldfastError

if TYPE_CHECKING:
    from state_lib.client.snapshot_round import Job, SnapshotRound

TELL_EVERY_S = 15.0


class SnapshotsTrigger(BaseTrigger):
    """Asks the owners of tasks for snapshots until all have ended; tells progress in the log.

    Every look names the request, so one that is made anew, after a restart of the triggerer or by
    the next try of the task, finds what was taken before and has nothing taken twice.

    Events: ``ended``, and ``timed_out`` if some run still when the time is over, both with ``jobs``
    as `state_lib.client.snapshot_round.Job`; ``failed`` with ``error`` as on the wire, if hosts
    could not even be asked.

    Args:
        app: The application.
        partitions: Of the tasks.
        request: Id of the request.
        conn_id: The Holdfast connection; empty: there is none, and the triggerer's own settings
            count. One that there was and that cannot be read is waited for.
        env: ``HOLDFAST_*`` variables that win over it.
        until: When to wait no longer, as wall time (s); None: never.
        look_every_s: Seconds between looks.
    """

    def __init__(  # noqa: PLR0913 - what, for whom, and where
        self,
        app: str,
        partitions: Sequence[int],
        request: str,
        conn_id: str = HoldfastHook.default_conn_name,
        env: dict[str, str] | None = None,
        *,
        until: float | None = None,
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.app, self.partitions, self.request = app, list(partitions), request
        self.conn_id, self.env = conn_id, env or {}
        self.until, self.look_every_s = until, look_every_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class and arguments, from which a triggerer makes it again."""
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        names = ("app", "partitions", "request", "conn_id", "env", "until", "look_every_s")
        return path, {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Ask and look; hosts that do not answer hold up neither each other nor other triggers."""
        watch = Watch(self.app, self.env)
        told_at = float("-inf")
        try:
            asked = await when_told(lambda: watch.call(self._round), self.log, self.until)
            while True:
                looked = await watch.call(asked.look)
                self._tell_ended(looked)
                late = self.until is not None and time.time() > self.until
                if asked.ended or late:
                    yield _event("ended" if asked.ended else "timed_out", jobs=asked.jobs)
                    return
                if time.monotonic() - told_at > TELL_EVERY_S:
                    told_at = time.monotonic()
                    self._tell_progress(asked.jobs)
                await asyncio.sleep(self.look_every_s)
        except HoldfastError as error:
            yield _event("failed", error=error.to_wire())
        finally:
            watch.close()

    # ------------------------------------------------------------------ inside

    def _round(self) -> SnapshotRound:
        from state_lib.client.snapshot_round import SnapshotRound

        settings = settings_while_there(self.conn_id, self.env)
        hosts, token = settings.host_addresses, settings.read_token()
        return SnapshotRound(self.app, self.partitions, self.request, hosts, token)

    def _tell_ended(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            if job["error"]:
                why = job["error"]["message"]
                self.log.warning("%s on %s: no snapshot: %s", job["task"], job["host"], why)
            elif job["state"] != "running":
                self.log.info("%s on %s: %s", job["task"], job["host"], job["snapshot"])

    def _tell_progress(self, jobs: Sequence[Job]) -> None:
        running = [job for job in jobs if job["state"] == "running"]
        ended = f"{len(jobs) - len(running)} of {len(jobs)}"
        shown = "; ".join(map(progress_of, running[:5]))
        self.log.info("%s: %s snapshots have ended. %s", self.app, ended, shown)


def progress_of(job: Job) -> str:
    """One line about a snapshot that runs."""
    bytes_ = f", {job['done']:,} of {job['total']:,} bytes" if job["total"] else ""
    return f"{job['task']} on {job['host']}: {job['phase']}{bytes_}"


def _event(name: str, **more: Any) -> TriggerEvent:
    return TriggerEvent({"event": name, **more})  # type: ignore[no-untyped-call]
