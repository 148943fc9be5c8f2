"""All checks, over the same facts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from state_lib.checks.compaction import compaction
from state_lib.checks.disk import disk
from state_lib.checks.facts import Facts
from state_lib.checks.hosts import hosts, memory_bound, tasks
from state_lib.checks.logs import changelog_lost, checkpoint
from state_lib.checks.replication import replication
from state_lib.checks.retention import retention
from state_lib.checks.segments import segments
from state_lib.checks.snapshots import snapshots
from state_lib.checks.tombstones import tombstones
from state_lib.checks.topics import cleanup_policy, timestamps, topics
from state_lib.checks.verdict import Report, Verdict

CHECKS: dict[str, Callable[[Facts], Iterator[Verdict]]] = {
    "topics": topics,
    "cleanup-policy": cleanup_policy,
    "retention": retention,
    "tombstones": tombstones,
    "timestamps": timestamps,
    "replication": replication,
    "segments": segments,
    "compaction": compaction,
    "changelog-lost": changelog_lost,
    "checkpoint": checkpoint,
    "hosts": hosts,
    "tasks": tasks,
    "memory-bound": memory_bound,
    "disk": disk,
    "snapshots": snapshots,
}
"""By name; each has a page in docs/runbook."""


SETTINGS = (
    "topics",
    "cleanup-policy",
    "retention",
    "tombstones",
    "timestamps",
    "replication",
    "segments",
)
"""Those that look at topics alone, and whose verdicts have changes."""


def judge(facts: Facts, checks: Iterable[str] = tuple(CHECKS)) -> Report:
    """Every verdict, of all checks or of some."""
    found = tuple(v for name in checks for v in CHECKS[name](facts))
    return Report(facts.app, facts.now, found)
