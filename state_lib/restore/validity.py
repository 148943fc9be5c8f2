"""Is a directory or a snapshot valid to go on from? Pure: facts in, a verdict out (invariant 5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from state_lib.changelog.log import LogRange
from state_lib.changelog.topics import changelog_topic
from state_lib.protocol.marker import RESTORING, Marker
from state_lib.specs import Topology
from state_lib.stores.task_stores import Checkpoint, layout_of
from state_lib.words import span

AGE_MARGIN_MS = 3600 * 1000
"""Taken off ``delete.retention.ms``: a directory that is nearly too old counts as too old."""


@dataclass(frozen=True)
class Validity:
    """Of what stands at a checkpoint.

    Attributes:
        why_not: it cannot be used; None if replaying the tails of ``kept`` gives the exact state.
        kept: by topic, the logs of those stores that it holds in their present layout. The others
            (new ones, those of another layout, memory stores) are built from their changelogs.
        current: it is the state of the newest commit.
    """

    why_not: str | None
    kept: Mapping[str, LogRange] = field(default_factory=dict)
    current: bool = False


def judge(
    topology: Topology,
    checkpoint: Checkpoint | None,
    logs: Mapping[str, LogRange],
    newest: Marker,
    now: int,
) -> Validity:
    """Whether one can go on from a checkpoint, and with which stores.

    Valid means: topic ids match, and either it stands at the newest marker (then nothing is left
    to replay, whatever the log has deleted since), or each offset lies within the log and the
    state is younger than the tombstones that the log still holds. Older, and keys that were
    deleted meanwhile would come back to life. (Offsets alone do not tell whether anything is left:
    after a commit the log ends with the transaction's control record.)

    Windows of a state of before a restore to the past are not kept: it may have dropped some that
    are live again.

    Args:
        topology: of the application.
        checkpoint: of the directory or the snapshot; None if it has none.
        logs: facts of every changelog.
        newest: marker of the task.
        now: wall time in ms.
    """
    if checkpoint is None:
        return Validity("it holds no checkpoint")
    # A restore to the past writes to the logs, and its marker stays until all is written.
    at, current = checkpoint.marker, newest.state != RESTORING and is_current(checkpoint, newest)
    kept: dict[str, LogRange] = {}
    for store in topology.stores:
        topic = changelog_topic(topology.app, store.name)
        same_layout = checkpoint.layouts.get(store.name) == layout_of(store)
        if store.is_window and _is_before(at, newest.rewound):
            continue
        if same_layout and store.backend != "memory" and topic in checkpoint.offsets:
            kept[topic] = logs[topic]
    for topic, log in kept.items():
        topic_id, offset = checkpoint.offsets[topic]
        age = now - at.written_at
        behind = not current and not is_drained(topic, offset, newest)
        why = None
        if topic_id != log.topic_id:
            why = f"topic {topic} was created again ({topic_id} is now {log.topic_id})"
        elif offset > log.end or (offset < log.start and behind):
            why = f"offset {offset} of {topic} is outside the log [{log.start}, {log.end}]"
        elif offset < log.end and behind and age > log.delete_retention_ms - AGE_MARGIN_MS:
            why = (
                f"its state is {span(age)} old, and {topic} keeps tombstones for "
                f"{span(log.delete_retention_ms)}, less {span(AGE_MARGIN_MS)} to be sure: some "
                "since then may be gone"
            )
        if why is not None:
            return Validity(why, kept, current)
    return Validity(None, kept, current)


def _is_before(marker: Marker, rewound: int) -> bool:
    """Whether it is of before the restore to the past of an epoch has ended."""
    return marker.epoch < rewound or (marker.epoch == rewound and marker.state == RESTORING)


def is_drained(topic: str, offset: int, newest: Marker) -> bool:
    """Whether nothing that was committed to a changelog lies at an offset or beyond.

    A task that wrote no window for long: brokers deleted all segments, and the log starts behind
    the control record of its last transaction.
    """
    return newest.state != RESTORING and offset >= newest.committed.get(topic, inf)


def is_current(checkpoint: Checkpoint, newest: Marker) -> bool:
    """Whether the state is that of the newest commit."""
    known = checkpoint.marker
    same_commit = (known.epoch, known.batch_number) == (newest.epoch, newest.batch_number)
    return same_commit and known.positions == newest.positions
