"""Does every task have a host that keeps it open, and do its stores fit there?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from state_lib.checks.facts import Facts, TaskSeen
from state_lib.checks.verdict import Level, Verdict
from state_lib.words import size, some

HOSTS, TASKS, MEMORY = "hosts", "tasks", "memory-bound"
_NEAR, _FULL = 0.8, 0.95
_STEPS = {
    "quarantined": "look at 'holdfast restore plan {app}', then run 'holdfast restore run {app}'",
    "opening": "wait; if it stays so, see what its host says: 'holdfast logs'",
    "restoring": "wait: 'holdfast stores {app}' shows how far it is",
}


def hosts(facts: Facts) -> Iterator[Verdict]:
    """Every configured host answers in time."""
    for host in facts.hosts:
        needed = "an answer in time"
        if host.away is None:
            yield Verdict(HOSTS, host.id, "ok", f"{len(host.tasks)} tasks of it", needed)
        else:
            step = (
                "start it, or look at its machine; if it is gone for good: docs/how-to/restore.md"
            )
            yield Verdict(HOSTS, host.id, "fail", host.away, needed, step)


def tasks(facts: Facts) -> Iterator[Verdict]:
    """Every task is open on a host: one verdict for all that are in the same state."""
    seen = {task.partition: (host.id, task) for host in facts.hosts for task in host.tasks}
    groups: dict[str, list[int]] = defaultdict(list)
    for partition in range(facts.topology.partitions):
        found = seen.get(partition)
        groups["none" if found is None else found[1].state].append(partition)
    needed = "open on one host"
    for state, partitions in groups.items():
        subject = f"{facts.app}/{some(partitions)}"
        if state == "open":
            text = f"{len(partitions)} tasks are open"
            yield Verdict(TASKS, facts.app, "ok", text, needed)
        elif state == "none":
            yield _orphans(facts, subject, partitions, needed)
        else:
            host, task = seen[partitions[0]]
            level: Level = "fail" if state == "quarantined" else "warn"
            text = f"{len(partitions)} tasks are {state}; {task.partition} on {host}: {task.why}"
            step = _STEPS.get(state, _STEPS["opening"]).format(app=facts.app)
            yield Verdict(TASKS, subject, level, text, needed, step)


def memory_bound(facts: Facts) -> Iterator[Verdict]:
    """Memory stores stay below their bound: at it, commits are refused."""
    for spec in facts.topology.stores:
        if spec.backend != "memory":
            continue
        used = [
            (found.memory_bytes / (found.max_bytes or spec.max_bytes), host.id, task)
            for host in facts.hosts
            for task in host.tasks
            if (found := task.stores.get(spec.name)) is not None
        ]
        needed = f"at most {size(spec.max_bytes)} for each task"
        if not used:
            yield Verdict(MEMORY, spec.name, "ok", "no task of it is open", needed)
            continue
        share, host, task = max(used, key=lambda u: u[0])
        text = f"{share:.0%} of it in task {task.partition} on {host}"
        if share < _NEAR:
            yield Verdict(MEMORY, spec.name, "ok", text, needed)
            continue
        level: Level = "fail" if share >= _FULL else "warn"
        step = "raise the store's max_bytes in the job, give it backend='rocksdb', or keep less"
        yield Verdict(MEMORY, spec.name, level, text, needed, step)


def _orphans(facts: Facts, subject: str, partitions: list[int], needed: str) -> Verdict:
    away = [h.id for h in facts.hosts if h.away is not None]
    named = {facts.markers[p].owner for p in partitions if p < len(facts.markers)} - {""}
    text = f"{len(partitions)} tasks have no owner; the last one was {', '.join(sorted(named))}"
    if away:
        step = f"start {', '.join(away)}: with it they are back"
    else:
        step = (
            f"start the job: hosts learn of tasks by its claim ('holdfast drivers {facts.app}'); "
            "or HOLDFAST_HOSTS differs from what the driver has"
        )
    return Verdict(TASKS, subject, "fail", text, needed, step)


def biggest(facts: Facts, host: str) -> TaskSeen | None:
    """The task with the largest directory on a host."""
    found = [task for one in facts.hosts if one.id == host for task in one.tasks]
    return max(found, key=lambda t: t.bytes, default=None)
