"""Is there a snapshot of each task that a restore could use?"""

from __future__ import annotations

from collections.abc import Iterator

from state_lib.checks.facts import DrillSeen, Facts, SnapshotsSeen
from state_lib.checks.verdict import Verdict
from state_lib.specs import DAY_MS
from state_lib.words import some, span

NAME = "snapshots"
DRILL = "restore drill"
DRILL_AGE_MS = 7 * DAY_MS
"""Drills are daily; where some failed, the one before is not forgotten at once."""


def snapshots(facts: Facts) -> Iterator[Verdict]:
    """What is in storage, and what the last drill said of it."""
    yield from stored(facts)
    if facts.snapshots is not None and facts.snapshots.drill is not None:
        yield _drilled(facts, facts.snapshots.drill)


def stored(facts: Facts) -> Iterator[Verdict]:
    """Age and use of the newest, and what is in storage but not listed."""
    seen = facts.snapshots
    if seen is None:
        return
    step = f"{take_one(facts.app)}, and see that it is done daily at least"
    needed = f"one of each task, at most {span(facts.wanted.snapshot_age_ms)} old, usable"
    if seen.away is not None:
        look = "look at the storage, at HOLDFAST_SNAPSHOTS_URL and its credentials"
        yield Verdict(NAME, seen.url, "fail", seen.away, needed, look)
        return
    yield _newest(facts, seen, needed, step)
    if seen.broken:
        first, why = next(iter(seen.broken.items()))
        text = f"{len(seen.broken)} are not whole, and not listed: {first}: {why}"
        look = (
            f"'holdfast snapshot verify {facts.app}', or the DAG {facts.app}_verify_snapshots; "
            f"'holdfast snapshot prune', or the DAG {facts.app}_prune, removes them"
        )
        yield Verdict(NAME, seen.url, "warn", text, "only whole ones", look)


def take_one(app: str) -> str:
    """How a person has new ones taken."""
    return f"'holdfast snapshot create {app}', or the DAG {app}_snapshots"


def stale(facts: Facts) -> list[int]:
    """Tasks without a snapshot that is young enough and of use; none where nobody could look."""
    if facts.snapshots is None or facts.snapshots.away is not None:
        return []
    newest, oldest = facts.snapshots.newest, facts.now - facts.wanted.snapshot_age_ms
    return [
        p
        for p in range(facts.topology.partitions)
        if (one := newest.get(p)) is None
        or one.why_not is not None
        or (not one.current and one.written_at < oldest)
    ]


def _newest(facts: Facts, seen: SnapshotsSeen, needed: str, step: str) -> Verdict:
    app, partitions = facts.app, range(facts.topology.partitions)
    missing = [p for p in partitions if p not in seen.newest]
    if len(missing) == len(partitions):
        text = f"none in {seen.url}: a restore reads whole changelogs"
        return Verdict(NAME, app, "warn", text, needed, step)
    if unusable := [p for p in partitions if p in seen.newest and seen.newest[p].why_not]:
        first = unusable[0]
        text = (
            f"those of tasks {some(unusable)} cannot be used; {first}: {seen.newest[first].why_not}"
        )
        return Verdict(NAME, app, "fail", text, needed, step)
    if missing:
        return Verdict(NAME, app, "warn", f"none of tasks {some(missing)}", needed, step)
    behind = [s.written_at for s in seen.newest.values() if not s.current]
    if not behind:
        return Verdict(NAME, app, "ok", "one of each task, at its newest commit", needed)
    age = facts.now - min(behind)
    if age > facts.wanted.snapshot_age_ms:
        return Verdict(NAME, app, "warn", f"the oldest is {span(age)} old", needed, step)
    return Verdict(NAME, app, "ok", f"one of each task, {span(age)} old at most", needed)


def _drilled(facts: Facts, drill: DrillSeen) -> Verdict:
    """Whether what is in storage was read back: checks see sizes, a drill restores it.

    It never fails: the drill's own run did, and it may be of a life before a reset.
    """
    app, ago = facts.app, span(facts.now - drill.at)
    needed = f"each task restored aside and equal to the live one, within {span(DRILL_AGE_MS)}"
    again = f"trigger the DAG {app}_drill"
    if drill.different:
        text = (
            f"{ago} ago tasks {some(drill.different)} were not what their snapshots and tails gave"
        )
        step = f"'holdfast digest {app} --against changelog' tells which side is wrong"
        return Verdict(NAME, DRILL, "warn", text, needed, f"{step}; then {again}")
    if drill.failed:
        text = f"{ago} ago tasks {some(drill.failed)} could not be restored aside, or not compared"
        step = f"'holdfast drill {app}' says why; when it is mended, {again}"
        return Verdict(NAME, DRILL, "warn", text, needed, step)
    if facts.now - drill.at > DRILL_AGE_MS:
        return Verdict(NAME, DRILL, "warn", f"the last one was {ago} ago", needed, again)
    return Verdict(NAME, DRILL, "ok", f"{ago} ago each task was equal", needed)
