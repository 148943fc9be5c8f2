"""Follows restores that hosts carry out, look by look, over HTTP.

Nothing of it needs to be remembered: asked again for the same plans, by whatever process, it finds
those that run or are done. A host that was killed is asked once more when it is back.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from state_lib.apps.restoring import begin, partition_of
from state_lib.client.http import HostHttp, encoded
from state_lib.config import Settings
from state_lib.errors import Busy, HoldfastError, InvalidRequest, NotFound, Unavailable, from_wire
from state_lib.protocol.placement import owner_of
from state_lib.restore.plan import RestorePlan

ANSWER_S = 5.0
AWAY_S = 900.0
"""How long a host may be away, or a restore fail and be tried again, until it is given up."""
_FIRST_PAUSE_S, _MOST_PAUSE_S = 0.5, 5.0
_AT_ONCE = 4
"""Threads for requests to hosts, so that a slow host does not block others."""


@dataclass
class Followed:
    """One plan, and how it stands: ``running``, ``done``, ``stale`` or ``failed``."""

    plan: RestorePlan
    state: str = "running"
    why: str = ""
    job: dict[str, Any] = field(default_factory=dict)
    asked: Future[dict[str, Any]] | None = None
    begun: bool = False
    furthest: tuple[int, int] = (0, 0)
    """The most that any attempt came to, as `reached`."""
    trouble_since: float | None = None
    pause_s: float = _FIRST_PAUSE_S
    not_before: float = 0.0

    @property
    def records(self) -> int:
        """Records that were replayed."""
        return sum(one["records"] for one in self.job.get("stores", {}).values())

    @property
    def reached(self) -> tuple[int, int]:
        """Records that were replayed, and bytes that were fetched."""
        return self.records, int((self.job.get("fetched") or {}).get("done", 0))

    @property
    def percent(self) -> float:
        """Of what the plan has to replay; while a snapshot is fetched, of its bytes."""
        stores, fetched = self.job.get("stores", {}), self.job.get("fetched")
        if self.state == "done":
            return 100.0
        if fetched and not stores:
            return 100.0 * int(fetched["done"]) / max(1, int(fetched["total"]))
        wanted = sum(s.end - s.start for s in self.plan.steps)
        read: int = sum(one["offset"] - one["start"] for one in stores.values())
        return min(100.0, 100.0 * read / max(1, wanted))

    def told(self) -> str:
        """One line for a log."""
        task, source = self.plan.task, self.plan.choice
        if self.state == "running" and self.why:
            return f"{task}: {self.why}"
        fetched = self.job.get("fetched")
        if self.state == "running" and fetched and not self.job["stores"]:
            bytes_ = f"{fetched['done']:,} of {fetched['total']:,} bytes"
            return f"{task}: fetching snapshot {source}: {bytes_} ({self.percent:.0f} %)"
        if self.state in ("running", "done"):
            seconds = self.job.get("seconds", 0.0)
            rows = f"{self.records:,} rows ({self.percent:.0f} %)"
            return f"{task}: from {source}: {rows}, {self.state} after {seconds:,.1f} s"
        return f"{task}: {self.state}: {self.why}"

    def to_json(self) -> dict[str, Any]:
        """What is kept of it."""
        return {
            "task": self.plan.task,
            "source": self.plan.choice,
            "state": self.state,
            "why": self.why,
            "records": self.records,
            "seconds": self.job.get("seconds", 0.0),
            "marker": self.job.get("marker"),
        }


class RestoreWatch:
    """Of some plans of one application.

    Args:
        settings: where the hosts are.
        app: application.
        plans: that hosts are to carry out.
        away_s: see `AWAY_S`.
        answer_s: how long a host may take to say how a restore goes.

    Raises:
        InvalidRequest: a plan is of another application.
    """

    def __init__(
        self,
        settings: Settings,
        app: str,
        plans: Sequence[RestorePlan],
        away_s: float = AWAY_S,
        answer_s: float = ANSWER_S,
    ) -> None:
        self._settings, self._app, self._away_s = settings, app, away_s
        self.followed = [Followed(plan) for plan in plans]
        self._answer_s, token, hosts = answer_s, settings.read_token(), settings.host_addresses
        self._https = {a.id: HostHttp(a, token, answer_s) for a in hosts}
        self._pools = {a.id: ThreadPoolExecutor(_AT_ONCE, f"restores-{a.id}") for a in hosts}
        self._partitions = {plan.task: partition_of(app, plan.task) for plan in plans}
        self._owners = {task: owner_of(app, p, hosts).id for task, p in self._partitions.items()}

    @property
    def over(self) -> bool:
        """Whether none runs any more."""
        return all(one.state != "running" for one in self.followed)

    def look(self) -> list[Followed]:
        """Ask after all that run, side by side; begin what has not begun; returns them.

        That takes as long as a host may take to answer. One that has not answered is away, and is
        not asked again before it has.
        """
        running = [one for one in self.followed if one.state == "running"]
        for one in running:
            if one.asked is None and time.monotonic() >= one.not_before:
                one.asked = self._pools[self._owners[one.plan.task]].submit(self._job, one)
        wait([one.asked for one in running if one.asked is not None], self._answer_s)
        for one in running:
            if one.asked is not None:
                self._heed(one, one.asked)
        return running

    def close(self) -> None:
        """Close the connections; what waits for an answer ends by that."""
        for http in self._https.values():
            http.close()
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)

    # ------------------------------------------------------------------ inside

    def _heed(self, one: Followed, asked: Future[dict[str, Any]]) -> None:
        if not asked.done():
            host = self._owners[one.plan.task]
            why = f"host {host!r} has not answered for {self._answer_s:g} s"
            self._in_trouble(one, Unavailable(why, host=host))
            return
        one.asked = None
        try:
            one.job, one.why = asked.result(), ""
            if one.job["state"] == "failed":
                raise from_wire(one.job["error"])
            one.state = one.job["state"]
            if one.state == "done" or one.reached > one.furthest:  # a start alone is no progress
                one.furthest, one.trouble_since = one.reached, None
                one.pause_s = _FIRST_PAUSE_S
        except Unavailable as error:  # transient: a starting host, a full disk, another restore
            self._in_trouble(one, error)
        except InvalidRequest as error:  # mostly PlanStale
            one.state, one.why = "stale", error.message
        except HoldfastError as error:
            one.state, one.why = "failed", error.message

    def _job(self, one: Followed) -> dict[str, Any]:
        """How the restore of this plan goes.

        It is begun if its host knows nothing of it, and again after a failure that was heeded.
        """
        plan, partition = one.plan, self._partitions[one.plan.task]
        path = f"/v1/apps/{encoded(self._app)}/tasks/{partition}/restore"
        try:
            job = self._https[self._owners[plan.task]].get(path, patient=False)
        except NotFound:
            job = {}
        if job.get("plan") == plan.id and (one.begun or job["state"] != "failed"):
            one.begun = job["state"] != "failed"
            return job
        if job.get("state") == "running":
            raise Busy(f"another restore of {plan.task} is running, from {job['source']}")
        job = begin(self._settings, self._app, plan)
        one.begun = True
        return job

    def _in_trouble(self, one: Followed, error: HoldfastError) -> None:
        now = time.monotonic()
        since = one.trouble_since = one.trouble_since or now
        one.why = f"{error.message}; it is tried again"
        one.not_before, one.pause_s = now + one.pause_s, min(2 * one.pause_s, _MOST_PAUSE_S)
        if now - since > self._away_s:
            one.state = "failed"
            one.why = f"given up after {self._away_s:.0f} s: {error.message}"
