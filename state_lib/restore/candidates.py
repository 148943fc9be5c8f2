"""The sources of a task's state, judged: what each would cost, or why it is not valid. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from state_lib.changelog.sample import Sample
from state_lib.changelog.topics import changelog_topic
from state_lib.protocol.marker import IN_DOUBT
from state_lib.restore.facts import Facts
from state_lib.restore.source import broken_logs
from state_lib.restore.validity import Validity, judge
from state_lib.snapshots.manifest import Manifest
from state_lib.specs import StoreSpec
from state_lib.stores.task_stores import Checkpoint

SourceName = Literal["local", "snapshot", "changelog"]
# Measured on one core of a small machine (benchmarks/): only for estimates that are shown.
FULL_RECORDS_PER_S = 350_000
TAIL_RECORDS_PER_S = 150_000
FETCH_BYTES_PER_S = 100e6
OPEN_S = 0.2
_ENTRY_BYTES = 24  # overhead per entry in an SST: lengths, sequence number, index and filter
SPACE_FULL = 2.2
"""Disk for each byte of a log that is replayed from its start: universal compaction merges all
runs, and what goes in and what comes out lie side by side until it has ended."""
_SPACE_TAIL = 2.0  # room for compaction


@dataclass(frozen=True)
class Step:
    """What is done for one store: replay ``[start, end)`` of its changelog.

    ``full``: the store is emptied first; otherwise it holds everything before ``start``.
    ``records`` and ``bytes`` are estimates; offsets are not dense.
    """

    store: str
    topic: str
    start: int
    end: int
    full: bool
    records: int
    bytes: int


@dataclass(frozen=True)
class Option:
    """One source. ``why_not``: it is not valid; None if it is. ``id`` names a snapshot."""

    source: SourceName
    id: str | None
    why_not: str | None
    about: str
    steps: tuple[Step, ...] = ()
    needed_bytes: int = 0
    fetched_bytes: int = 0

    @property
    def name(self) -> str:
        """What `--from` calls it."""
        return self.id or self.source

    @property
    def records(self) -> int:
        """To be replayed, estimated."""
        return sum(s.records for s in self.steps)

    @property
    def bytes(self) -> int:
        """To be fetched and read, estimated."""
        return self.fetched_bytes + sum(s.bytes for s in self.steps)

    @property
    def seconds(self) -> float:
        """Until the task is open, estimated."""
        replays = sum(
            s.records / (FULL_RECORDS_PER_S if s.full else TAIL_RECORDS_PER_S) for s in self.steps
        )
        return round(OPEN_S + replays + self.fetched_bytes / FETCH_BYTES_PER_S, 1)


def local(facts: Facts) -> Option:
    """The task's own directory."""
    checkpoint = facts.local.checkpoint
    found = _judged(facts, checkpoint)
    why = facts.local.why or found.why_not
    if why is None:
        why = _why_broken(facts, facts.logs if facts.local.in_use else found.kept)
    if why is not None or checkpoint is None:
        return Option("local", None, why, "")
    current = found.current
    steps = () if current and facts.local.in_use else _steps_after(facts, checkpoint, found)
    about = "the directory stands at the newest commit"
    if not current:
        at = checkpoint.marker
        about = f"the directory stands at commit {at.epoch}/{at.batch_number}: its tail is replayed"
    return Option("local", None, None, about, steps, _space(facts, steps))


def snapshots(facts: Facts) -> list[Option]:
    """Snapshots, newest first; or one that says why storage cannot be read."""
    if facts.storage is not None:
        return [Option("snapshot", None, facts.storage, "")]
    found = [_snapshot(facts, manifest) for manifest in facts.snapshots]
    for snapshot, why in facts.unlisted.items():
        found.append(Option("snapshot", snapshot, facts.refused.get(snapshot, why), ""))
    return sorted(found, key=lambda option: option.name, reverse=True)  # ids begin with the time


def _snapshot(facts: Facts, manifest: Manifest) -> Option:
    checkpoint = manifest.checkpoint
    found = _judged(facts, checkpoint)
    why = facts.refused.get(manifest.id)
    if why is None and not found.kept:
        why = "it holds none of the application's present stores"
    why = why or found.why_not or _why_broken(facts, found.kept)
    if why is not None:
        return Option("snapshot", manifest.id, why, "")
    steps = _steps_after(facts, checkpoint, found)
    size = sum(f.size for f in manifest.files if not f.of_memory)
    age = (facts.now - manifest.written_at) / 3_600_000
    at = f"commit {manifest.marker.epoch}/{manifest.marker.batch_number}"
    about = f"taken at {at}, {age:.1f} h old; what this disk has already is not fetched"
    space = size + _space(facts, steps)
    return Option("snapshot", manifest.id, None, about, steps, space, size)


def changelog(facts: Facts) -> Option:
    """All changelogs from their start: valid unless one lost it."""
    why = _why_broken(facts, ())
    if why is not None:
        return Option("changelog", None, why, "")
    steps = tuple(
        _step(facts, spec, facts.logs[_topic(facts, spec)].start, full=True)
        for spec in facts.topology.stores
    )
    about = "every changelog is replayed from its start"
    return Option("changelog", None, None, about, steps, _space(facts, steps))


def _judged(facts: Facts, checkpoint: Checkpoint | None) -> Validity:
    return judge(facts.topology, checkpoint, facts.logs, facts.marker, facts.now)


def _why_broken(facts: Facts, kept: Collection[str]) -> str | None:
    """Why stores whose topic is not in ``kept`` cannot be built from their changelogs, or None.

    Nothing goes on beside a topic in doubt, also what needs nothing from it.
    """
    for topic, why in broken_logs(facts.topology, facts.marker, facts.logs).items():
        if topic not in kept or facts.marker.logs.get(topic) == IN_DOUBT:
            return f"{topic}: {why}"
    return None


def _steps_after(facts: Facts, checkpoint: Checkpoint, found: Validity) -> tuple[Step, ...]:
    """What is missing in state that stands at a checkpoint."""
    steps = []
    for spec in facts.topology.stores:
        topic = _topic(facts, spec)
        if topic not in found.kept:  # another layout, an interrupted build, or a memory store
            steps.append(_step(facts, spec, facts.logs[topic].start, full=True))
        elif not found.current:
            steps.append(_step(facts, spec, checkpoint.offsets[topic][1], full=False))
    return tuple(s for s in steps if s.full or s.start < s.end)


def _step(facts: Facts, spec: StoreSpec, start: int, *, full: bool) -> Step:
    topic = _topic(facts, spec)
    seen = facts.samples.get(topic, Sample())
    end = facts.logs[topic].end
    records = round(max(0, end - start) * seen.density)
    return Step(spec.name, topic, start, end, full, records, round(records * seen.record_bytes))


def _space(facts: Facts, steps: tuple[Step, ...]) -> int:
    in_memory = {s.name for s in facts.topology.stores if s.backend == "memory"}
    return round(
        sum(
            (s.bytes + _ENTRY_BYTES * s.records) * (SPACE_FULL if s.full else _SPACE_TAIL)
            for s in steps
            if s.store not in in_memory
        )
    )


def _topic(facts: Facts, spec: StoreSpec) -> str:
    return changelog_topic(facts.topology.app, spec.name)
