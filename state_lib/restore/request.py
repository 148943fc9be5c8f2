"""What a restore of one task needs to know, and the plan that follows from it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from state_lib.changelog.log import CommitLog
from state_lib.errors import LogLost, Quarantined, Unavailable
from state_lib.protocol.marker import Marker
from state_lib.restore.facts import gather, thorough
from state_lib.restore.listener import RestoreListener
from state_lib.restore.local import Local
from state_lib.restore.options import RestoreOptions
from state_lib.restore.plan import AUTO, LOCAL, RestorePlan, make_plan
from state_lib.restore.pool import WorkerPool
from state_lib.specs import Topology
from state_lib.stores.rocksdb.options import RocksDBOptions


@dataclass(frozen=True)
class RestoreRequest:
    """Everything that a restore of one task needs to know.

    Attributes:
        log, topology, partition, path, options, listener: of the task.
        marker: the newest, read after the writer fenced all others, so that the logs cannot move
            any more.
        wanted: `AUTO`, or the source that somebody chose.
        plan_id: of the plan that somebody asked for; "" if nobody did.
        settled: this host had a whole directory of the task. If that cannot be used it is lost.
        restore: settings of restores.
        pool: of worker processes; None: all is done in this one.
        cancelled: asked now and then; a restore that is not wanted any more ends.
        refused: snapshots that turned out not to be usable before, and why; who wants one of them
            by its id may try.
    """

    log: CommitLog
    topology: Topology
    partition: int
    path: Path
    marker: Marker
    options: RocksDBOptions
    listener: RestoreListener
    wanted: str = AUTO
    plan_id: str = ""
    settled: bool = False
    restore: RestoreOptions = field(default_factory=RestoreOptions)
    pool: WorkerPool | None = None
    cancelled: Callable[[], bool] = lambda: False
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """``<app>/<partition>``."""
        return f"{self.topology.app}/{self.partition}"

    @property
    def waits_if_lost(self) -> bool:
        """Whether somebody else decides what becomes of the directory, if it cannot be used."""
        return self.settled and self.restore.mode == "orchestrated"

    def plan(
        self,
        local: Local,
        *,
        complete: bool = False,
        fenced: bool = True,
        refused: Mapping[str, str] | None = None,
    ) -> RestorePlan:
        """The plan for this directory as things stand now. Raises as `make_plan`.

        Args:
            local: what is there.
            complete: look at what is not needed too. By itself only where local state is no good,
                and that is not left to somebody else.
            fenced: whether other writers were fenced; see `gather`.
            refused: more snapshots that turned out not to be usable, and why.
        """
        facts = gather(
            self.log,
            self.topology,
            self.partition,
            self.path,
            self.marker,
            local.facts,
            fenced=fenced,
        )
        if not complete and self.wanted in (AUTO, LOCAL):
            with contextlib.suppress(LogLost):  # there may be a snapshot
                plan = make_plan(facts, self.wanted)
                if plan.source == LOCAL or self._leaves(plan):
                    return plan
        known = {name: why for name, why in self.refused.items() if name != self.wanted}
        known |= refused or {}
        facts = thorough(facts, self.log, self.restore.snapshots_url, known)
        return make_plan(facts, self.wanted)

    def check_cancelled(self) -> None:
        """Raise Unavailable if it is not wanted any more."""
        if self.cancelled():
            raise Unavailable(
                f"the restore of {self.name} was ended: its host stops, or other stores are "
                "declared now",
                task=self.name,
            )

    def refuse_if_lost(self, plan: RestorePlan, local: Local) -> None:
        """Raise Quarantined if this plan is not the host's own to run."""
        if not self._leaves(plan):
            return
        why = next((c.why for c in plan.candidates if c.source == LOCAL), "it is gone")
        local.close()
        app, partition = self.topology.app, self.partition
        raise Quarantined(
            f"the local state of task {self.name} is lost ({why}); it waits for a restore: by "
            f"Airflow's DAG {app}_restore if there is one, else look at `holdfast restore plan "
            f"{app} --task {partition}`, then run `holdfast restore run {app} --task {partition}`",
            task=self.name,
            reason=why,
        )

    def _leaves(self, plan: RestorePlan) -> bool:
        """Whether a plan is for somebody else to decide on, who looks at all sources anew."""
        whole = any(s.backend != "memory" for s in self.topology.stores)
        lost = whole and plan.source != LOCAL
        return lost and self.wanted == AUTO and self.waits_if_lost
