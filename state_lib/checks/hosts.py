"""Does every task have a host that keeps it open, and do its stores fit there?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from state_lib.checks.facts import Facts, HostSeen
from state_lib.checks.verdict import Level, Verdict
from state_lib.words import size, some

HOSTS, TASKS, MEMORY = "hosts", "tasks", "memory-bound"
_NEAR, _FULL = 0.8, 0.95
_STEPS = {
    "quarantined": "the DAG {app}_restore, or {app}_restore_by_hand, restores it; or look at "
    "'holdfast restore plan {app}', then run 'holdfast restore run {app}'",
    "opening": "wait; if it stays so, see what its host says: 'holdfast logs'",
    "restoring": "wait: 'holdfast stores {app}' shows how far it is",
}


def hosts(facts: Facts) -> Iterator[Verdict]:
    """Every configured host answers in time."""
    return (answer_of(host) for host in facts.hosts)


def answer_of(host: HostSeen) -> Verdict:
    """The verdict of one host."""
    needed = "an answer in time"
    if host.away is None:
        return Verdict(HOSTS, host.id, "ok", f"{len(host.tasks)} tasks of it", needed)
    step = "start it, or look at its machine; if it is gone for good: docs/how-to/restore.md"
    return Verdict(HOSTS, host.id, "fail", host.away, needed, step)


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
            yield Verdict(TASKS, subject, level, text, needed, next_step(facts.app, state))


def next_step(app: str, state: str) -> str:
    """What to do about a task that is not open."""
    return _STEPS.get(state, _STEPS["opening"]).format(app=app)


def orphans(facts: Facts) -> list[int]:
    """Tasks that no host has which answers."""
    held = {task.partition for host in facts.hosts for task in host.tasks}
    return [p for p in range(facts.topology.partitions) if p not in held]


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
    named = {facts.markers[p].owner for p in partitions if p < len(facts.markers)} - {""}
    text = f"{len(partitions)} tasks have no owner; the last one was {', '.join(sorted(named))}"
    return Verdict(TASKS, subject, "fail", text, needed, orphans_step(facts))


def orphans_step(facts: Facts) -> str:
    """What to do about tasks without owner."""
    away = [h.id for h in facts.hosts if h.away is not None]
    if away:
        return f"start {', '.join(away)}: with it they are back"
    return (
        f"start the job: hosts learn of tasks by its claim ('holdfast drivers {facts.app}'); "
        f"or HOLDFAST_HOSTS ({', '.join(h.id for h in facts.hosts)}) is not what the driver has"
    )
