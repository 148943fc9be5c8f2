"""``python -m state_lib.apps.jobs KIND APP ID``: work on state whose report is the record ID.

Its other arguments are in ``ID.given`` beside the report: JSON, for the functions below.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

import orjson

from state_lib.apps.losses import repair_losses
from state_lib.apps.past import Journey, carry_out
from state_lib.apps.restoring import host_of, partition_of
from state_lib.changelog.claims import topology_of
from state_lib.client.snapshots import SnapshotClient
from state_lib.config import Settings
from state_lib.digests.compare import compare
from state_lib.errors import NotFound
from state_lib.kafka import Kafka
from state_lib.logs import configure_logging
from state_lib.protocol.stored import to_stored
from state_lib.reports.folder import Kind, Reports
from state_lib.reports.job import Tell, run_job
from state_lib.snapshots.verification import verify_snapshots

Work = Callable[..., Mapping[str, Any]]


def go_back(
    settings: Settings, app: str, tell: Tell, *, journey: Mapping[str, Any], request: str
) -> Mapping[str, Any]:
    """Take tasks back in time, once for a request; see `state_lib.apps.past.carry_out`.

    Returns:
        ``tasks``, each with ``task``, ``source``, ``state``, ``records``, ``seconds``, ``marker``.
    """
    planned = Journey.from_json(journey)
    stands: dict[str, dict[str, int]] = {}

    def watch(task: str, event: Mapping[str, Any]) -> None:
        if event["event"] == "done" and "marker" in event:
            stands[task] = {name: event["marker"][name] for name in ("epoch", "n")}
            tell(f"{len(stands)} tasks of {app} are back")

    carry_out(settings, planned, tell, watch, request)
    work = [one for one in planned.plans if not one.is_nothing]
    for one in work:  # those of an earlier try
        if one.task not in stands:
            partition = partition_of(app, one.task)
            with host_of(settings, app, partition) as client:
                marker = client.marker(app, partition)
            stands[one.task] = {"epoch": marker.epoch, "n": marker.batch_number}
    return {"app": app, "drivers": list(planned.drivers), "tasks": [
        {"task": one.task, "source": one.snapshot, "state": "done", "records": one.records,
         "seconds": None, "marker": stands[one.task]}
        for one in work
    ]}  # fmt: skip


def repair(settings: Settings, app: str, tell: Tell, *, tasks: Sequence[str]) -> Mapping[str, Any]:
    """Rewrite lost topics of tasks; ``failed``: why some were not rewritten, by task."""
    done: list[str] = []

    def watch(task: str, event: Mapping[str, Any]) -> None:
        if event["event"] == "done":
            done.append(task)
            tell(f"{len(done)} of {len(tasks)} tasks of {app} are written anew")

    failures = repair_losses(settings, app, tasks, watch)
    failed = {task: error.to_wire() for task, error in failures.items()}
    return {"app": app, "tasks": [task for task in tasks if task not in failed], "failed": failed}


def savepoint(settings: Settings, app: str, tell: Tell, *, timeout_s: float) -> Mapping[str, Any]:
    """Take all tasks at one commit; the savepoint, as it is stored."""
    made = SnapshotClient(settings, app).savepoint(
        lambda job: tell(f"{job['task']}: {job['phase']}"), timeout_s
    )
    return to_stored(asdict(made))


def verification(
    settings: Settings, app: str, tell: Tell, *, snapshot: str | None, deep: bool
) -> Mapping[str, Any]:
    """Look whether snapshots are whole; ``snapshots``, as `verify_snapshots` returns them."""

    def watch(seen: Mapping[str, Any]) -> None:
        tell(f"{seen['task']}: {seen['phase']}, {seen['done']:,} of {seen['total']:,} bytes")

    url = settings.snapshots_url
    found = verify_snapshots(url, app, snapshot, deep=deep, watch=watch)
    return {"app": app, "url": url, "deep": deep, "snapshots": found}


def comparison(
    settings: Settings, app: str, tell: Tell, *, tasks: Sequence[str], against: str
) -> Mapping[str, Any]:
    """Compare live stores of tasks with their changelogs, or the newest snapshot and its tail.

    Returns:
        As `state_lib.digests.compare.Comparison.to_json`; and ``at``, wall time (s) of the end.
    """
    kafka, seen = Kafka.of(settings), Counter[str]()

    def watch(task: str, what: str, entries: int) -> None:
        seen[task] += entries
        tell(f"{task}: {what}, {seen[task]:,} so far")

    found = compare(
        kafka,
        topology_of(kafka, app),
        settings.host_addresses,
        settings.read_token(),
        partitions=[partition_of(app, task) for task in tasks],
        snapshots_url=settings.snapshots_url if against == "snapshot" else None,
        report=watch,
    )
    return {**found.to_json(), "at": time.time()}


WORK: Mapping[str, Work] = {
    "comparison": comparison,
    "repair": repair,
    "restore": go_back,
    "savepoint": savepoint,
    "verification": verification,
}
"""By the kind of their reports."""


def main(arguments: list[str]) -> int:
    """Run it; returns the exit code."""
    kind, app, job = arguments
    settings = Settings.load()
    configure_logging(settings.log_level)
    reports = Reports.of(settings, app, cast("Kind", kind))

    def work(tell: Tell) -> Mapping[str, Any]:
        given = reports.read(f"{job}.given")
        if given is None:
            raise NotFound(f"{reports.url(f'{job}.given')} is not there: who launched this job?")
        return WORK[kind](settings, app, tell, **orjson.loads(given))

    return run_job(reports, job, work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
