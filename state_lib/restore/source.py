"""Do the logs hold what was committed? Pure: facts in, an error out."""

from __future__ import annotations

from collections.abc import Mapping

from state_lib.changelog.log import LogRange
from state_lib.changelog.topics import changelog_topic, commits_topic
from state_lib.errors import LogLost
from state_lib.protocol.marker import IN_DOUBT, Marker
from state_lib.specs import Topology
from state_lib.stores.task_stores import Checkpoint


def lost_logs(
    topology: Topology, marker: Marker, checkpoint: Checkpoint | None, logs: Mapping[str, LogRange]
) -> dict[str, str]:
    """Topics that do not hold what was committed → what was seen; the commits topic comes first.

    Args:
        topology: of the application.
        marker: the newest.
        checkpoint: of the local directory, if there is one.
        logs: facts of every changelog that exists.
    """
    lost: dict[str, str] = {}
    commits = commits_topic(topology.app)
    if lost_commits(marker, checkpoint) and checkpoint is not None:
        here, there = _at(checkpoint.marker), _at(marker)
        lost[commits] = f"the local copy stands at commit {here}, its newest marker says {there}"
        marker = checkpoint.marker
    for topic, log in logs.items():
        held_id, held_to = (checkpoint.offsets.get(topic) or ("", 0)) if checkpoint else ("", 0)
        known = marker.logs.get(topic) or (held_id if _at(marker) >= (0, 0) else "")
        committed = max(marker.committed.get(topic, 0), held_to if held_id == log.topic_id else 0)
        if why := _not_it(known, log):
            lost[topic] = why
        elif committed > log.end:
            lost[topic] = f"it ends at offset {log.end}, and {committed} was committed"
        elif _at(marker) < (0, 0) and log.end > 0:
            lost[commits] = f"it holds no marker of this task, and {topic} {log.end} offsets"
    return lost


def lost_commits(marker: Marker, checkpoint: Checkpoint | None) -> bool:
    """Whether the directory stands beyond the newest marker."""
    return checkpoint is not None and _at(checkpoint.marker) > _at(marker)


def broken_logs(topology: Topology, marker: Marker, logs: Mapping[str, LogRange]) -> dict[str, str]:
    """Changelogs that no store can be built from, read from their start → what was seen.

    They were created again, or are in doubt, or lack their first records, though nothing but
    compaction may remove any. Arguments as `lost_logs`.
    """
    found = {}
    for spec in topology.stores:
        topic = changelog_topic(topology.app, spec.name)
        log = logs.get(topic)
        if log is None:
            continue
        if why := _not_it(marker.logs.get(topic, ""), log):
            found[topic] = why
        elif not spec.is_window and log.start > marker.starts.get(topic, log.start):
            # (Brokers delete windows by age.)
            found[topic] = f"its records before offset {log.start} were deleted"
    return found


def met(marker: Marker, logs: Mapping[str, LogRange]) -> dict[str, int]:
    """`Marker.starts` of an owner who finds these logs: new ones as they are."""
    return {
        topic: marker.starts.get(topic, log.start) if topic in marker.logs else log.start
        for topic, log in logs.items()
    }


def check_logs(
    topology: Topology,
    partition: int,
    marker: Marker,
    checkpoint: Checkpoint | None,
    logs: Mapping[str, LogRange],
) -> None:
    """Refuse topics that do not hold what was committed: to go on would count from nothing.

    Judged after other writers were fenced: before, the log's end may lag behind what stands.
    Arguments as `lost_logs`.

    Raises:
        LogLost: which topic, what was seen, and the ways out.
    """
    for topic, why in lost_logs(topology, marker, checkpoint, logs).items():
        raise log_lost(topology, partition, topic, why)


def log_lost(topology: Topology, partition: int, topic: str, why: str) -> LogLost:
    """The refusal, with its ways out."""
    app = topology.app
    return LogLost(
        f"task {app}/{partition} cannot go on: topic {topic!r} lost what was committed: {why}. "
        f"What this host has of it is kept. 'holdfast repair changelog {app} --task {partition}' "
        f"writes it anew from there; or begin anew: 'holdfast app reset {app}'. (After a reset "
        "that this host missed, remove its directory of the task)",
        task=f"{app}/{partition}",
        topic=topic,
    )


def _not_it(known: str, log: LogRange) -> str | None:
    """Why a topic is not the one of an id that a marker or a copy names; "": it names none."""
    if known == IN_DOUBT:
        return "it was found to be lost, and no repair of it has ended"
    if known and known != log.topic_id:
        return f"it was deleted and created again (its id was {known}, is {log.topic_id})"
    return None


def _at(marker: Marker) -> tuple[int, int]:
    return marker.epoch, marker.batch_number
