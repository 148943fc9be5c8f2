"""Does age delete what still counts? Brokers apply ``retention.ms`` to the time of events."""

from __future__ import annotations

from collections.abc import Iterator

from state_lib.changelog.policy import Problem
from state_lib.changelog.topics import RETENTION_MARGIN_MS, TopicPlan
from state_lib.checks.facts import Facts, TopicSeen
from state_lib.checks.snapshots import take_one
from state_lib.checks.topics import by_repair, changes, of
from state_lib.checks.verdict import Level, Verdict
from state_lib.protocol.marker import NO_TIME
from state_lib.specs import StoreSpec
from state_lib.words import span

NAME = "retention"
_KEY = "retention.ms"
_CALM_MS = RETENTION_MARGIN_MS // 4
"""How far behind the wall clock the stream may be for a lifted retention to be lowered: hosts lift
it at half of the margin (`state_lib.task.retention`), so it does not go to and fro."""


def retention(facts: Facts) -> Iterator[Verdict]:
    """Nothing that counts is older than its topic keeps it, and no size bounds a log."""
    for plan, seen in facts.existing():
        bound = of(plan, seen, "retention.bytes")
        if bound is not None:
            yield _bad(facts, plan, "fail", f"retention.bytes={bound.seen}", bound)
        elif "delete" not in seen.config["cleanup.policy"]:
            yield Verdict(NAME, plan.name, "ok", "nothing is deleted by age", "for ever")
        elif plan.store is not None:
            if plan.store.is_window:  # other stores must not delete: see `cleanup_policy`
                yield _of_windows(facts, plan, seen, plan.store)
        elif not plan.owned:
            yield _of_output(plan, seen)
        else:
            yield _of_log(facts, plan, seen)


def _of_windows(facts: Facts, plan: TopicPlan, seen: TopicSeen, store: StoreSpec) -> Verdict:
    kept, wanted = int(seen.config[_KEY]), int(plan.config[_KEY])
    oldest = (
        facts.now - (facts.stream_time_ms - store.retention_ms)
        if facts.stream_time_ms != NO_TIME
        else 0
    )
    if kept == -1:
        return _lifted(facts, plan, oldest, store.retention_ms)
    lift = Problem(_KEY, str(kept), "-1", "-1")
    proper = Problem(_KEY, str(kept), str(wanted), str(wanted))
    back = f"{span(kept)}, and live windows reach back {span(oldest)}"
    if oldest > kept:
        return _bad(facts, plan, "fail", f"{back}: they are being deleted", lift)
    if kept < store.retention_ms:
        return _bad(facts, plan, "fail", f"{span(kept)}, less than the store's own", proper)
    if oldest > kept - RETENTION_MARGIN_MS // 2:
        return _bad(facts, plan, "warn", back, lift)
    if kept < wanted:
        text = f"{span(kept)}, less than the store's own and a margin of a day"
        return _bad(facts, plan, "warn", text, proper)
    return _readable(facts, plan, kept)


def _lifted(facts: Facts, plan: TopicPlan, oldest: int, retention_ms: int) -> Verdict:
    """Hosts lift it while events are old; nobody else lowers it again."""
    wanted = plan.config[_KEY]
    if facts.restoring or facts.stream_time_ms == NO_TIME or oldest >= retention_ms + _CALM_MS:
        return Verdict(NAME, plan.name, "ok", "for ever", f"at least {span(int(wanted))}")
    text = "for ever, lifted for old events; the stream is in the present: expired windows pile up"
    return _bad(facts, plan, "warn", text, Problem(_KEY, "-1", wanted, wanted))


def _readable(facts: Facts, plan: TopicPlan, kept: int) -> Verdict:
    """Whether the slowest reader finds what it would go on from."""
    reader, age = max(readers(facts), key=lambda r: r[1], default=("nobody", 0))
    if age <= kept:
        needed = f"at least {span(int(plan.config[_KEY]))}"
        return Verdict(NAME, plan.name, "ok", span(kept), needed)
    text = f"{span(kept)}, and {reader} is {span(age)} old: what it would go on from is gone"
    step = f"start the host, or take a snapshot: {take_one(facts.app)}"
    return Verdict(NAME, plan.name, "warn", text, f"more than {span(age)}", step)


def _of_log(facts: Facts, plan: TopicPlan, seen: TopicSeen) -> Verdict:
    """Progress, dead letters: kept as long as planned."""
    kept, wanted = int(seen.config[_KEY]), int(plan.config.get(_KEY, "-1"))
    if kept != -1 and (wanted == -1 or kept < wanted):
        proper = Problem(_KEY, str(kept), span(wanted), str(wanted))
        return _bad(facts, plan, "warn", f"{span(kept)}: older records go", proper)
    return Verdict(NAME, plan.name, "ok", span(kept), span(wanted))


def _of_output(plan: TopicPlan, seen: TopicSeen) -> Verdict:
    found = of(plan, seen, _KEY)
    kept = span(int(seen.config[_KEY]))
    if found is None:
        return Verdict(NAME, plan.name, "ok", kept, "for ever")
    step = "raise it with kafka-configs: it is an output, which Holdfast does not alter"
    text = f"{kept}: results of older events are deleted as soon as they are written"
    return Verdict(NAME, plan.name, "fail", text, found.needed, step)


def readers(facts: Facts) -> Iterator[tuple[str, int]]:
    """Snapshots that stand behind the newest commit, and directories of hosts that are away."""
    newest = {} if facts.snapshots is None else facts.snapshots.newest
    for partition, snapshot in newest.items():
        if not snapshot.current:
            name = f"the newest snapshot of task {partition}"
            yield name, facts.now - snapshot.written_at
    away = {h.id for h in facts.hosts if h.away is not None}
    for partition, marker in enumerate(facts.markers):
        if marker.owner in away:
            name = f"the directory of task {partition} on {marker.owner}"
            yield name, facts.now - marker.written_at


def _bad(facts: Facts, plan: TopicPlan, level: Level, text: str, found: Problem) -> Verdict:
    return Verdict(
        NAME,
        plan.name,
        level,
        text,
        found.needed,
        by_repair(facts),
        changes(plan, found),
    )
