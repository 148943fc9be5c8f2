"""Do the logs hold what was committed? Pure: facts in, an error out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from state_lib.changelog.topics import DELETE_RETENTION_MS, commits_topic
from state_lib.errors import LogLost
from state_lib.marker import Marker
from state_lib.specs import Topology
from state_lib.stores.task_stores import Checkpoint


@dataclass(frozen=True)
class LogRange:
    """Facts of one changelog partition: the topic's id, log start and last stable offset.

    ``delete_retention_ms`` is the topic's own: one that Kafka Streams made keeps tombstones a day.
    """

    topic_id: str
    start: int
    end: int
    delete_retention_ms: int = DELETE_RETENTION_MS


def check_logs(
    topology: Topology,
    partition: int,
    marker: Marker,
    checkpoint: Checkpoint | None,
    logs: Mapping[str, LogRange],
) -> None:
    """Refuse topics that do not hold what was committed: to go on would count from nothing.

    Judged after other writers were fenced: before, the log's end may lag behind what stands.

    Args:
        topology: of the application.
        partition: of the task.
        marker: the newest.
        checkpoint: of the local directory, if there is one.
        logs: facts of every changelog.

    Raises:
        LogLost: which topic, what was seen, and the ways out.
    """
    commits = commits_topic(topology.app)
    lost: tuple[str, str] | None = None
    if checkpoint is not None and _at(checkpoint.marker) > _at(marker):
        here, there = _at(checkpoint.marker), _at(marker)
        lost = commits, f"the local copy stands at commit {here}, its newest marker says {there}"
    for topic, log in logs.items():
        held_id, held_to = (checkpoint.offsets.get(topic) or ("", 0)) if checkpoint else ("", 0)
        known = marker.logs.get(topic) or (held_id if _at(marker) >= (0, 0) else "")
        cut = marker.cut.get(topic, [0])[0]
        if known and known != log.topic_id:
            lost = (
                topic,
                f"it was deleted and created again (its id was {known}, is {log.topic_id})",
            )
        elif max(cut, held_to if held_id == log.topic_id else 0) > log.end:
            lost = topic, f"it ends at offset {log.end}, and {max(cut, held_to)} was committed"
        elif _at(marker) < (0, 0) and log.end > 0:
            lost = commits, f"it holds no marker of this task, and {topic} {log.end} offsets"
    if lost is not None:
        raise LogLost(
            f"task {topology.app}/{partition} cannot go on: topic {lost[0]!r} lost what was "
            f"committed: {lost[1]}. What this host has of it is kept. Bring the topic back; or "
            f"begin anew: 'holdfast app reset {topology.app}'. (After a reset that this host "
            "missed, remove its directory of the task)",
            task=f"{topology.app}/{partition}",
            topic=lost[0],
        )


def _at(marker: Marker) -> tuple[int, int]:
    return marker.epoch, marker.n
