"""Are deletions remembered for as long as somebody may go on from before them?"""

from __future__ import annotations

from collections.abc import Iterator

from state_lib.changelog.policy import Problem
from state_lib.changelog.topics import DELETE_RETENTION_MS
from state_lib.checks.facts import Facts
from state_lib.checks.retention import readers
from state_lib.checks.snapshots import take_one
from state_lib.checks.topics import by_repair, changes
from state_lib.checks.verdict import Verdict
from state_lib.restore.validity import AGE_MARGIN_MS
from state_lib.words import span

NAME = "tombstones"
_KEY = "delete.retention.ms"


def tombstones(facts: Facts) -> Iterator[Verdict]:
    """``delete.retention.ms`` against the ages of directories and snapshots."""
    oldest, age = max(readers(facts), key=lambda r: r[1], default=("", 0))
    for plan, seen in facts.changelogs():
        kept = int(seen.config[_KEY])
        needed = f"at least {span(DELETE_RETENTION_MS)}"
        short = Problem(_KEY, str(kept), needed, str(DELETE_RETENTION_MS))
        repair = changes(plan, short) if kept < DELETE_RETENTION_MS else ()
        if kept <= AGE_MARGIN_MS:
            text = (
                f"{span(kept)}: no restore may go on from a directory or snapshot (its margin is "
                f"{span(AGE_MARGIN_MS)}), whole changelogs are read"
            )
            yield Verdict(NAME, plan.name, "fail", text, needed, by_repair(facts), repair)
        elif age > kept - AGE_MARGIN_MS:
            text = f"{span(kept)}, and {oldest} is {span(age)} old: deleted keys would come back"
            step = (
                f"take a new one: {take_one(facts.app)}; a directory that old is set aside and "
                "built anew by its host"
            )
            above = f"more than {span(age + AGE_MARGIN_MS)}"
            yield Verdict(NAME, plan.name, "fail", text, above, step, repair)
        elif age > kept / 2:
            text = f"{span(kept)}, and {oldest} is {span(age)} old"
            step = f"start the host, or {take_one(facts.app)}"
            yield Verdict(NAME, plan.name, "warn", text, needed, step, repair)
        elif repair:
            yield Verdict(NAME, plan.name, "warn", span(kept), needed, by_repair(facts), repair)
        else:
            yield Verdict(NAME, plan.name, "ok", span(kept), needed)
