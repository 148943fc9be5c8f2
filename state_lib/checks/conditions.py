"""Which conditions hold, by what was gathered: facts in, conditions out. Asks nobody."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from state_lib.checks.condition import CANNOT_LOOK, Condition, Name
from state_lib.checks.disk import disk_of
from state_lib.checks.facts import Facts, HostSeen
from state_lib.checks.hosts import answer_of, next_step, orphans, orphans_step
from state_lib.checks.judging import judge
from state_lib.checks.snapshots import stale, stored
from state_lib.checks.verdict import Verdict
from state_lib.drivers.sight import Sight
from state_lib.drivers.stall import why_stalled
from state_lib.drivers.states import last_end, state_of

UNSAFE = (
    "topics",
    "cleanup-policy",
    "retention",
    "tombstones",
    "timestamps",
    "replication",
    "segments",
    "compaction",
    "changelog-lost",
)
"""Checks whose failure means that a changelog does not protect its store."""
_NOBODY: Mapping[str, Sequence[str]] = {}


def host_down(
    app: str, hosts: Iterable[HostSeen], had: Mapping[str, Sequence[str]] = _NOBODY
) -> Iterator[Condition]:
    """Hosts that do not answer.

    Args:
        app: the application whose tasks are concerned.
        hosts: all that are configured.
        had: host → tasks that it had when it answered last.
    """
    for host in hosts:
        if host.away is not None:
            given = {"tasks": tuple(had.get(host.id, ())), "hosts": (host.id,)}
            yield Condition.of("host-down", app, answer_of(host), **given)


def task_without_owner(facts: Facts) -> Iterator[Condition]:
    """Tasks that no host has which answers; with a static list of hosts: those of one that is away.

    It needs topology, markers and hosts.
    """
    for partition in orphans(facts):
        known = partition < len(facts.markers) and facts.markers[partition].owner
        last = f"the last one was {known}" if known else "nobody has ever had it"
        yield Condition(
            "task-without-owner",
            facts.app,
            f"{facts.app}/{partition}",
            seen=f"no host has it; {last}",
            needed="open on one host",
            step=orphans_step(facts),
            page="tasks",
            tasks=(f"{facts.app}/{partition}",),
            hosts=(known,) if known else (),
        )


def driver_stalled(app: str, sight: Sight, late_s: float | None) -> Iterator[Condition]:
    """A driver that is gone and was not asked to stop, or that commits nothing though it has work.

    Args:
        app: whose.
        sight: a look at it at which Kafka answered.
        late_s: for how long there has been work without a commit, if that is too long: see
            `state_lib.drivers.pace.Pace.late`.
    """
    end, state = last_end(sight), state_of(sight)
    if state == "failed" and end is not None:
        seen = f"no driver runs: {end.why}"
        step = (
            f"'holdfast drivers {app}' shows how it ended; start the stream again, as by the DAG "
            f"{app}_stream, or end it: 'holdfast stop {app}'"
        )
    elif late_s is not None and state in ("running", "starting"):
        seen = (
            f"{sight.lag:,} records to do and nothing committed for {late_s:,.0f} s: "
            f"{why_stalled(sight)[1]}"
        )
        step = f"look at the driver's log ('holdfast drivers {app}') and at Spark's page"
    else:
        return
    yield Condition(
        "driver-stalled",
        app,
        app,
        seen=seen,
        needed="a driver that commits what there is to do",
        step=step,
        page="driver-stalled",
        tasks=tuple(f"{app}/{p}" for p in sight.parked),
    )


def changelog_unsafe(facts: Facts) -> Iterator[Condition]:
    """Topics of the application that fail a check; one for each topic, of all that it fails.

    It needs what Kafka says; samples of logs only if compaction is to be judged.
    """
    owned = {plan.name for plan in facts.plans() if plan.owned}
    failed: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in judge(facts, UNSAFE).verdicts:
        if verdict.level == "fail" and verdict.subject in owned:
            failed[verdict.subject].append(verdict)
    for subject, verdicts in failed.items():
        seen = "; ".join(f"{v.check}: {v.seen}" for v in verdicts)
        needed = "; ".join(v.needed for v in verdicts)
        yield Condition(
            "changelog-unsafe",
            facts.app,
            subject,
            seen=seen,
            needed=needed,
            step=verdicts[0].step,
            page=verdicts[0].check,
        )


def compaction_stuck(facts: Facts) -> Iterator[Condition]:
    """Changelogs that the brokers do not compact. It needs samples of the logs."""
    for verdict in judge(facts, ("compaction",)).verdicts:
        if verdict.level == "fail":
            yield Condition.of("compaction-stuck", facts.app, verdict)


def store_lost(app: str, hosts: Iterable[HostSeen]) -> Iterator[Condition]:
    """Tasks whose stores their host has lost, or found corrupt, and does not restore by itself."""
    for host in hosts:
        for task in host.tasks:
            if task.state == "quarantined":
                yield Condition(
                    "store-lost",
                    app,
                    f"{app}/{task.partition}",
                    seen=f"{host.id} has it in quarantine: {task.why}",
                    needed="its stores, whole",
                    step=next_step(app, task.state),
                    page="store-lost",
                    tasks=(f"{app}/{task.partition}",),
                    hosts=(host.id,),
                )


def stores_seen(app: str, hosts: Iterable[HostSeen]) -> frozenset[str]:
    """Tasks whose hosts have their stores, or have lost them; of those that open nobody knows."""
    return frozenset(
        f"{app}/{task.partition}"
        for host in hosts
        for task in host.tasks
        if task.state in ("open", "quarantined")
    )


def snapshot_stale(facts: Facts) -> Iterator[Condition]:
    """Snapshots that are missing, too old or of no use, or storage that does not answer.

    It needs what Kafka says, and snapshots.
    """
    for verdict in stored(facts):
        if verdict.level == "fail" or (verdict.level == "warn" and verdict.subject == facts.app):
            tasks = tuple(f"{facts.app}/{p}" for p in stale(facts))
            given = {"subject": facts.app, "tasks": tasks}
            yield Condition.of("snapshot-stale", facts.app, verdict, **given)


def disk_filling(app: str, hosts: Iterable[HostSeen]) -> Iterator[Condition]:
    """Hosts whose disks are nearly full, will be soon, or have no room for a restore."""
    for host in hosts:
        if host.away is None and host.disk_total:
            verdict = disk_of(host)
            if verdict.level != "ok":
                tasks = tuple(f"{app}/{t.partition}" for t in host.tasks)
                given = {"tasks": tasks, "hosts": (host.id,)}
                yield Condition.of("disk-filling", app, verdict, **given)


def cannot_look(app: str, name: Name, why: str) -> Condition:
    """For a condition, which may hold or not: nobody knows."""
    return Condition(
        CANNOT_LOOK,
        app,
        name,
        seen=why,
        needed="answers of those who would know",
        step="start who is away, or correct the connection that Airflow uses and its rights",
        page="connections",
    )
