"""Facts of an application that is well, to be spoilt by a test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from state_lib.changelog.topics import plan_topics
from state_lib.checks.facts import (
    Facts,
    HostSeen,
    LogSample,
    SnapshotSeen,
    SnapshotsSeen,
    StoreSeen,
    TaskSeen,
    TopicSeen,
    Wanted,
)
from state_lib.checks.judging import CHECKS
from state_lib.checks.verdict import Verdict
from state_lib.protocol.marker import Marker
from state_lib.specs import DAY_MS, OutputSpec, StoreSpec, Topology

HOUR = 3_600_000
NOW = 1_800_000_000_000
KV = StoreSpec("kv")
WIN = StoreSpec("win", kind="window", window_size_ms=HOUR, retention_ms=4 * HOUR)
MEM = StoreSpec("mem", backend="memory", max_bytes=1000)
APP = Topology("app", 2, (KV, WIN, MEM), (OutputSpec("out", "kv"),), ("source",))
KV_LOG, WIN_LOG, MEM_LOG = (f"app-{s.name}-changelog" for s in APP.stores)
LOGS = (KV_LOG, WIN_LOG, MEM_LOG)
BROKERS_OWN = {
    "retention.ms": str(7 * DAY_MS),
    "retention.bytes": "-1",
    "delete.retention.ms": str(7 * DAY_MS),
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": str(2**63 - 1),
    "segment.ms": str(7 * DAY_MS),
    "segment.bytes": str(1 << 30),
}
TASKS = {KV.name: StoreSeen(100), WIN.name: StoreSeen(100), MEM.name: StoreSeen(10, 500, 1000)}


def topic(partitions: int, config: dict[str, str]) -> TopicSeen:
    three, zeros, ends = (3,) * partitions, (0,) * partitions, (1000,) * partitions
    return TopicSeen("id", {**BROKERS_OWN, **config}, three, three, (), zeros, ends)


def sample(partition: int = 0, **more: object) -> LogSample:
    """Of a log of 1,000 records of 100 bytes that was read whole, each key once."""
    found = LogSample(partition, 0, 1000, 1000, 1000, record_bytes=100.0, live=1000)
    return replace(found, **more)  # type: ignore[arg-type]


def well(**more: object) -> Facts:
    topics = {p.name: topic(p.partitions, dict(p.config)) for p in plan_topics(APP)}
    topics["source"] = topic(2, {"cleanup.policy": "delete", "retention.ms": "-1"})
    marker = Marker(
        epoch=3,
        batch_number=9,
        owner="host-1",
        stream_time_ms=NOW - HOUR,
        written_at=NOW - 60_000,
        logs=dict.fromkeys(LOGS, "id"),
        ends=dict.fromkeys(LOGS, 900),
        starts=dict.fromkeys(LOGS, 0),
    )
    tasks = [
        TaskSeen(p, bytes=1000, durable=dict.fromkeys(LOGS, 800), stores=TASKS) for p in (0, 1)
    ]
    hosts = [
        HostSeen(f"host-{p + 1}", None, (task,), 10**12, 6 * 10**11) for p, task in enumerate(tasks)
    ]
    newest = {p: SnapshotSeen(f"s{p}", NOW - HOUR, 1000) for p in (0, 1)}
    facts = Facts(
        topology=APP,
        now=NOW,
        wanted=Wanted(3, 2, DAY_MS),
        topics=topics,
        markers=(marker, marker),
        hosts=tuple(hosts),
        snapshots=SnapshotsSeen("file:///snapshots", newest),
        samples={log: (sample(), sample(1)) for log in LOGS},
    )
    return replace(facts, **more)  # type: ignore[arg-type]


def altered(facts: Facts, name: str, **config: str) -> Facts:
    """With other settings of one topic; dots are underscores."""
    seen = facts.topics[name]
    given = {k.replace("_", "."): v for k, v in config.items()}
    return with_topic(facts, name, replace(seen, config={**seen.config, **given}))


def with_topic(facts: Facts, name: str, seen: TopicSeen | None) -> Facts:
    topics = {k: v for k, v in facts.topics.items() if k != name}
    return replace(facts, topics=topics if seen is None else topics | {name: seen})


def verdicts(check: str, facts: Facts) -> dict[str, Verdict]:
    """By subject."""
    found = list(CHECKS[check](facts))
    assert len({v.subject for v in found}) == len(found), "one verdict for each subject"
    for one in found:
        assert one.check == check
        assert one.seen
        assert one.needed
        assert (one.level == "ok") == (one.step == ""), one
    return {v.subject: v for v in found}


def the(check: str, facts: Facts, subject: str) -> Verdict:
    """The verdict of one subject; every other one stays ok."""
    found = verdicts(check, facts)
    assert {v.level for s, v in found.items() if s != subject} <= {"ok"}, found
    return found[subject]


def changed(verdict: Verdict) -> dict[str, str]:
    """What a repair would set."""
    return {c.key: c.wanted for c in verdict.changes}


def all_of(facts: Facts) -> Iterator[Verdict]:
    for check in CHECKS.values():
        yield from check(facts)
