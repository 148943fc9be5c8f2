"""Does compaction really happen? Judged by what is in the log, not by settings.

A cleaned part of a log holds each key once. So the first record whose key occurred before it
bounds what was ever cleaned, and everything behind it is as it was written. Some of that is as it
should be: the cleaner leaves the last segment alone, and dirt up to a share of the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from state_lib.changelog.topics import TopicPlan
from state_lib.checks.facts import Facts, LogSample
from state_lib.checks.verdict import Level, Verdict, worst
from state_lib.words import size, some, span

NAME = "compaction"
PACKED = 3
"""Records take less in a segment than read: hosts write them with lz4. Where a sample shows that
they pack better, that counts."""
RECORD_BYTES = 12
"""That Kafka adds to a record in a batch of many, about."""
_MANY = 2
"""Times what is allowed: from there on it is no burst."""


@dataclass(frozen=True)
class Dirt:
    """Of one partition, in bytes before compression.

    Attributes:
        clean: before the first repeat.
        uncleaned: behind it, at least.
        allowed: what the settings leave uncleaned.
        dead: share of records that a later one overwrites, of those that were read.
        surplus: records beyond live entries and deletes, as bytes; 0 where live ones are not known.
        spare: how much of a surplus the settings leave.
    """

    clean: float
    uncleaned: float
    allowed: float
    dead: float
    surplus: float = 0.0
    spare: float = 0.0


def dirt(sample: LogSample, config: Mapping[str, str], *, windowed: bool) -> Dirt:
    """Measure one partition."""
    if not sample.records:
        return Dirt(0, 0, PACKED * int(config["segment.bytes"]), 0)
    record = sample.record_bytes + RECORD_BYTES
    before, behind = _records(sample)
    clean, uncleaned = before * record, behind * record
    ratio = min(float(config["min.cleanable.dirty.ratio"]), 0.9)
    segment = max(PACKED, sample.packed) * int(config["segment.bytes"])
    dirtier = ratio / (1 - ratio)
    dead = sample.repeats / sample.records
    allowed = segment + clean * dirtier
    if sample.live < 0 or windowed:  # expired windows stay in the log for some time
        return Dirt(clean, uncleaned, allowed, dead)
    kept = sample.live + (before + behind) * sample.deletes / sample.records
    surplus = max(0.0, before + behind - kept) * record
    return Dirt(clean, uncleaned, allowed, dead, surplus, segment + kept * record * dirtier)


def _records(sample: LogSample) -> tuple[float, float]:
    """How many there are before the first repeat and behind it, estimated."""
    dense = sample.records / sample.offsets
    if sample.first_repeat < 0:
        return (sample.end - sample.start) * dense, 0.0
    before = behind = dense
    if sample.before_offsets:
        before = sample.before_records / sample.before_offsets
        behind = (sample.records - sample.before_records) / (sample.offsets - sample.before_offsets)
    at = sample.first_repeat
    return (at - sample.start) * before, (sample.end - at) * behind


def compaction(facts: Facts) -> Iterator[Verdict]:
    """One verdict for each changelog of which partitions were read."""
    for plan, seen in facts.changelogs():
        samples = (facts.samples or {}).get(plan.name)
        if samples is None or "compact" not in seen.config["cleanup.policy"]:
            continue
        judged = [_of(facts, plan, one, seen.config) for one in samples]
        level = worst(found for found, _, _ in judged)
        looked = f"{len(samples)} of {seen.partitions} partitions read"
        needed = "each key once, but for the last segment and dirt of half the log"
        if level == "ok":
            records = sum(s.records for s in samples)
            dead = sum(s.repeats for s in samples) / records if records else 0
            text = f"{looked}, {records:,} records, {dead:.0%} of them dead"
            yield Verdict(NAME, plan.name, "ok", text, needed)
            continue
        worse = [(p, text) for found, p, text in judged if found == level]
        text = f"partitions {some([p for p, _ in worse])}; {worse[0][0]}: {worse[0][1]} ({looked})"
        step = (
            "look at the brokers: log.cleaner.enable, the metric uncleanable-partitions-count, "
            "log-cleaner.log; a restart makes them try again"
        )
        yield Verdict(NAME, plan.name, level, text, needed, step)


def _of(
    facts: Facts, plan: TopicPlan, sample: LogSample, config: Mapping[str, str]
) -> tuple[Level, int, str]:
    if sample.error is not None:
        return "fail", sample.partition, f"it cannot be read: {sample.error}"
    windowed = plan.store is not None and plan.store.is_window
    found = dirt(sample, config, windowed=windowed)
    if found.uncleaned > found.allowed:
        text = (
            f"{size(found.uncleaned)} from offset {sample.first_repeat:,} on were never cleaned, "
            f"{found.dead:.0%} of what was read is dead, {size(found.allowed)} are usual"
        )
        before = facts.earlier.get((plan.name, sample.partition))
        if before is not None and _came_on(sample, *before[1:]):
            return "warn", sample.partition, f"{text}; the cleaner comes on, from {before[2]:,}"
        lag = int(config["min.compaction.lag.ms"])
        if lag > 0:  # it is not known how much was written in that time
            return "warn", sample.partition, f"{text}, and what is younger than {span(lag)}"
        much = found.uncleaned > _MANY * found.allowed
        return ("fail" if much else "warn"), sample.partition, text
    if found.surplus > _MANY * found.spare:
        text = f"{size(found.surplus)} more than its live entries take"
        return "warn", sample.partition, text
    return "ok", sample.partition, ""


def _came_on(sample: LogSample, end: int, first_repeat: int) -> bool:
    """Whether less is uncleaned than before: places that are read move as a log grows."""
    moved = sample.first_repeat > first_repeat >= 0
    return moved and sample.end - sample.first_repeat < end - first_repeat
