"""Do the logs hold what was committed, and what directories would go on from?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from state_lib.changelog.log import LogRange
from state_lib.checks.facts import Facts
from state_lib.checks.topics import anew_by_hosts
from state_lib.checks.verdict import Verdict
from state_lib.restore.source import broken_logs, lost_logs
from state_lib.restore.validity import is_drained
from state_lib.words import some

LOST, CHECKPOINT = "changelog-lost", "checkpoint"


def changelog_lost(facts: Facts) -> Iterator[Verdict]:
    """No internal topic was deleted, cut or created again under its application."""
    found: dict[str, dict[int, str]] = defaultdict(dict)
    for partition, marker in enumerate(facts.markers):
        logs = _ranges(facts, partition)
        broken = broken_logs(facts.topology, marker, logs)
        for topic, why in (broken | lost_logs(facts.topology, marker, None, logs)).items():
            found[topic][partition] = why
    looked = [plan.name for plan, _ in facts.changelogs()]
    for topic in (*looked, *found.keys() - set(looked)):
        lost, needed = found[topic], "all that was committed"
        if not lost:
            yield Verdict(LOST, topic, "ok", f"{len(facts.markers)} partitions are whole", needed)
            continue
        first = min(lost)
        text = f"partitions {some(sorted(lost))} are not whole; {first}: {lost[first]}"
        step = f"{anew_by_hosts(facts)}: do so before a host is lost as well"
        yield Verdict(LOST, topic, "fail", text, needed, step)


def checkpoint(facts: Facts) -> Iterator[Verdict]:
    """What is on disk lies within the logs: after a kill a host goes on from there."""
    for host in facts.hosts:
        if host.away is not None:
            continue
        behind = [
            f"{task.partition} ({topic}: {offset}, and the log starts at {log.start})"
            for task in host.tasks
            if task.partition < len(facts.markers)
            for topic, log in _ranges(facts, task.partition).items()
            if (offset := task.durable.get(topic)) is not None and offset < log.start
            if not is_drained(topic, offset, facts.markers[task.partition])
        ]
        needed = "offsets within the logs"
        if behind:
            text = f"tasks {'; '.join(behind[:3])}: after a kill they would be built anew"
            step = (
                "hosts flush every HOLDFAST_FLUSH_INTERVAL_S: see what the host says ('holdfast "
                "logs'), and whether its disk is full"
            )
            yield Verdict(CHECKPOINT, host.id, "fail", text, needed, step)
        else:
            text = f"{len(host.tasks)} tasks could go on from their directories"
            yield Verdict(CHECKPOINT, host.id, "ok", text, needed)


def _ranges(facts: Facts, partition: int) -> dict[str, LogRange]:
    return {
        plan.name: LogRange(seen.id, seen.starts[partition], seen.ends[partition])
        for plan, seen in facts.changelogs()
        if partition < len(seen.ends)
    }
