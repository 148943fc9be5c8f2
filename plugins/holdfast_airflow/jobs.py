"""Jobs that end with a report: what Airflow remembers of them, and what is seen of them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

from holdfast_airflow.watched import app_asset
from state_lib.errors import StorageUnavailable, Unavailable

if TYPE_CHECKING:
    from airflow.sdk import Context

    from state_lib.drivers.process import DriverProcess
    from state_lib.reports.folder import Kind
    from state_lib.reports.record import Record

START_S = 180.0
"""How long a job that cannot be seen as a process may take to its first sign of life."""
SILENT_S = 60.0
"""How long it may be silent after that."""


@dataclass(frozen=True)
class Job:
    """One launched job.

    Attributes:
        kind: of its report.
        app: the application.
        url: of all reports.
        process: as `DriverProcess.to_json`; its id is that of the job's record as well.
    """

    kind: Kind
    app: str
    url: str
    process: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "kind": self.kind,
            "app": self.app,
            "url": self.url,
            "process": dict(self.process),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`."""
        return cls(data["kind"], data["app"], data["url"], data["process"])

    @property
    def id(self) -> str:
        """Of the record and of its processes' mark."""
        return str(self.process["id"])

    @property
    def place(self) -> str:
        """Where it runs, for people."""
        return f"process {self.process['pid']} on {self.process['host']}"

    def as_process(self) -> DriverProcess:
        """What was launched."""
        from state_lib.drivers.process import DriverProcess

        return DriverProcess.from_json(self.process)

    def end(self, timeout_s: float) -> None:
        """End its processes; on another machine it reads within seconds that it is to end itself.

        Args:
            timeout_s: until it is killed, on this machine.

        Raises:
            Unavailable: a process survives SIGKILL, or storage is away.
        """
        from state_lib.reports.folder import Reports

        process = self.as_process()
        if process.here:
            process.end(timeout_s)
        else:
            Reports(self.url, self.app, self.kind).ask_to_end(self.id)

    def look(self) -> Seen:
        """Whether it lives, and what it says."""
        from state_lib.reports.folder import Reports
        from state_lib.reports.record import Record

        alive = self.as_process().alive()  # before: what ends in between has said its last words
        try:
            return Seen(alive, Record.read(Reports(self.url, self.app, self.kind), self.id))
        except StorageUnavailable as error:
            return Seen(alive, None, error.message)


@dataclass(frozen=True)
class Seen:
    """One look at a job. ``alive``: None on another machine; ``away``: why there is no record."""

    alive: bool | None
    record: Record | None
    away: str | None = None

    @property
    def ended(self) -> bool:
        """Whether it has said its last words."""
        return self.record is not None and self.record.ended

    def lives(self, launched_at: float, now: float) -> bool:
        """Whether it does, as far as one look tells; times are wall seconds."""
        if self.ended or self.alive is not None:
            return bool(self.alive) and not self.ended
        if self.record is None:
            return now - launched_at < START_S
        return now - self.record.at / 1000 < SILENT_S


class Vigil:
    """Judges a job by one look after the other."""

    def __init__(self, now: float) -> None:
        self._heard_at, self._said_at, self._patience = now, -1, START_S

    def feed(self, seen: Seen, now: float) -> Literal["ended", "died", "lost"] | None:
        """What became of it; None: nothing new.

        Args:
            seen: a look.
            now: when that was (s, any clock that does not go back).
        """
        if seen.ended:
            return "ended"
        if seen.away is not None:
            self._heard_at = now
            return None
        if seen.alive is not None:
            return None if seen.alive else "died"
        if seen.record is not None and seen.record.at != self._said_at:
            self._heard_at, self._said_at, self._patience = now, seen.record.at, SILENT_S
        return "lost" if now - self._heard_at > self._patience else None


class JobMemory:
    """What the application's asset keeps of its last job of a kind, for one task.

    Args:
        context: of the task, which has the asset as an inlet.
        app: the application.
        kind: of report.
        apart: the last job of this task alone; those of other DAGs and tasks go on beside it.
    """

    def __init__(self, context: Context, app: str, kind: Kind, *, apart: bool = False) -> None:
        self._ti: Any = context["ti"]
        self._store: Any = context["asset_state_store"][app_asset(app)]
        whose = f"-{self._ti.dag_id}.{self._ti.task_id}" if apart else ""
        self._key = f"job-{kind}{whose}"

    def last(self) -> Job | None:
        """The job that was launched last, by whatever task."""
        known = self._store.get(self._key)
        return Job.from_json(known["job"]) if known else None

    def is_mine(self) -> bool:
        """Whether an earlier try of this task launched it, and no user has cleared it since."""
        known = self._store.get(self._key)
        return bool(known) and known["by"] == self._me()

    def was_cleared(self) -> bool:
        """Whether an earlier try of this task launched it, and a user has cleared it since."""
        known = self._store.get(self._key) or {}
        by, me = known.get("by") or {}, self._me()
        return by != me and {**by, "max_tries": me["max_tries"]} == me

    def keep(self, job: Job) -> None:
        """Remember it, as this task's."""
        self._store.set(self._key, {"job": job.to_json(), "by": self._me()})

    def disown(self) -> None:
        """It is nobody's: the next try of its task launches another one, once it has ended."""
        if known := self._store.get(self._key):
            self._store.set(self._key, {**known, "by": None})

    def _me(self) -> dict[str, Any]:
        ti = self._ti
        names = {"dag_id": ti.dag_id, "run_id": ti.run_id, "task_id": ti.task_id}
        return {**names, "max_tries": ti.max_tries}  # which a clear sets anew, and a retry does not


def lives(job: Job, seen: Seen, again_s: float | None = None) -> bool:
    """Whether a job lives, so that no second one may be launched.

    Args:
        job: that was launched last.
        seen: a look at it.
        again_s: after which it is looked at again where clocks of two machines may differ (s);
            default: two signs of life.

    Raises:
        Unavailable: it runs on another machine, and storage does not say how it is.
    """
    if seen.alive is None and seen.away is not None:
        raise Unavailable(
            f"it cannot be known whether the {job.kind} of {job.app} ({job.place}) still runs: "
            f"{seen.away}",
            app=job.app,
        )
    if seen.lives(float(job.process["started_at"]) / 1000, time.time()):
        return True
    if seen.alive is not None or seen.record is None or seen.ended:
        return False
    from state_lib.reports.job import BEAT_S

    time.sleep(2 * BEAT_S if again_s is None else again_s)
    later = job.look().record
    return later is not None and later.at != seen.record.at and not later.ended
