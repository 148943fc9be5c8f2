"""Can the cleaner work at all? It never touches a log's last segment, nor what is too young."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from state_lib.changelog.policy import Problem
from state_lib.checks.facts import Facts
from state_lib.checks.topics import by_repair, changes
from state_lib.checks.verdict import Verdict, worst
from state_lib.specs import DAY_MS
from state_lib.words import size, span

NAME = "segments"
GIB = 1 << 30
_RATIO, _LAG = "min.cleanable.dirty.ratio", "min.compaction.lag.ms"
_AGE, _BYTES = "segment.ms", "segment.bytes"
_MUCH_DIRT = 0.9


def segments(facts: Facts) -> Iterator[Verdict]:
    """Settings that make compaction impossible, or so late that nobody would notice."""
    for plan, seen in facts.existing():
        if not plan.owned or "compact" not in plan.config["cleanup.policy"]:
            continue
        found = list(_judged(seen.config))
        needed = "segments that close within a month, dirt of half a log, no lag"
        if not found:
            text = f"{size(int(seen.config[_BYTES]))} or {span(int(seen.config[_AGE]))} a segment"
            yield Verdict(NAME, plan.name, "ok", text, needed)
            continue
        level = worst("fail" if never else "warn" for never, _ in found)
        text = ", ".join(f"{p.key}={p.seen}" for _, p in found)
        late = "nothing is compacted" if level == "fail" else "compaction comes late"
        cure = changes(plan, *(p for _, p in found))
        step = by_repair(facts)
        yield Verdict(NAME, plan.name, level, f"{text}: {late}", needed, step, cure)


def _judged(config: Mapping[str, str]) -> Iterator[tuple[bool, Problem]]:
    """Whether it makes compaction impossible, and what would be better."""
    ratio, lag = float(config[_RATIO]), int(config[_LAG])
    if ratio > _MUCH_DIRT:
        yield ratio >= 1, Problem(_RATIO, config[_RATIO], "0.5", "0.5")
    if lag > DAY_MS:
        yield lag > 30 * DAY_MS, Problem(_LAG, config[_LAG], "0", "0")
    if int(config[_AGE]) > 30 * DAY_MS:
        never = int(config[_AGE]) > 365 * DAY_MS and int(config[_BYTES]) > GIB
        yield never, Problem(_AGE, config[_AGE], str(7 * DAY_MS), str(7 * DAY_MS))
    if int(config[_BYTES]) > GIB:
        yield False, Problem(_BYTES, config[_BYTES], str(GIB), str(GIB))
