"""Who may take a task: the driver of the newest claim, in the topic that its epochs come from.

An epoch is the offset of a claim in ``<app>-topology``. In a topic that was deleted and created
again they begin anew, so an epoch counts only within the topic that its claim is in.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from state_lib.changelog.claims import Claim, newest_claim
from state_lib.changelog.topics import commits_topic, topology_topic
from state_lib.errors import Superseded, TopicRecreated
from state_lib.kafka import Kafka, describe
from state_lib.marker import Marker, Verdict
from state_lib.task.opening import last_marker

_AT_ONCE = 8


def judge_claim(task: str, marker: Marker, epoch: int, topic_id: str) -> Verdict:
    """Decide whether the driver of a claim may take a task.

    Args:
        task: ``<app>/<partition>``.
        marker: where it stands.
        epoch: of the claim.
        topic_id: of the topology topic that holds it; empty if that is not known.

    Returns:
        Whether the task is to be taken, or is taken by it already.

    Raises:
        Superseded: a newer driver has it.
        TopicRecreated: the driver of an epoch that is not lower has it, whose claim was in a
            topic that was deleted since.
    """
    if epoch > marker.epoch:
        return Verdict.APPLY
    if marker.claimed_in and topic_id and marker.claimed_in != topic_id:
        raise outran(task, marker, epoch, topic_id)
    if epoch == marker.epoch:
        return Verdict.ALREADY_DONE
    raise Superseded(
        f"epoch {epoch} cannot claim {task}: epoch {marker.epoch} has; another driver runs this "
        "application",
        epoch=epoch,
        current=marker.epoch,
    )


def would_take(app: str, markers: Sequence[Marker], epoch: int, topic_id: str) -> bool:
    """Whether all tasks of an application, by partition, would be taken by a claim, or are.

    A restore to the past has an epoch and no claim: the claim of before it stands.
    """
    try:
        for partition, marker in enumerate(markers):
            claimed = replace(marker, epoch=marker.claim)
            judge_claim(f"{app}/{partition}", claimed, epoch, topic_id)
    except (Superseded, TopicRecreated):
        return False
    return True


def outran(task: str, marker: Marker, epoch: int, topic_id: str) -> TopicRecreated:
    """The error for a claim in a new topic, whose epochs have not reached those of the old one."""
    app = task.rpartition("/")[0]
    topic = topology_topic(app)
    return TopicRecreated(
        f"epoch {epoch} cannot claim {task}, which stands at epoch {marker.epoch}: topic {topic!r} "
        f"was deleted and created again since (its id was {marker.claimed_in or 'not told'}, is "
        f"{topic_id}), so its epochs began anew, and they must only grow. {_way_out(app)}",
        topic=topic,
        expected_id=marker.claimed_in,
        actual_id=topic_id,
        epoch=epoch,
        current=marker.epoch,
    )


def claim_or_none(kafka: Kafka, app: str) -> Claim | None:
    """The newest claim of an application; None if it was never claimed.

    Raises:
        TopicRecreated: its tasks were, and the topology topic does not hold the claim any more.
    """
    claim = newest_claim(kafka, app)
    if claim is not None:
        return claim
    newest = max(standing(kafka, app), key=lambda marker: marker.epoch, default=Marker())
    if newest.epoch < 0:
        return None
    topic = topology_topic(app)
    there = describe(kafka.admin(), [topic]).get(topic)
    raise TopicRecreated(
        f"topic {topic!r} {'does not exist' if there is None else 'holds no claim'}, and tasks of "
        f"{app!r} stand at epoch {newest.epoch}: it was deleted, and with it what their driver had "
        f"declared. A job with other sources, stores or code would not be noticed. {_way_out(app)}",
        topic=topic,
        expected_id=newest.claimed_in,
        actual_id="" if there is None else there.id,
        current=newest.epoch,
    )


def standing(kafka: Kafka, app: str) -> list[Marker]:
    """The newest marker of each task, by partition; none if there is no commits topic.

    Raises:
        Unavailable: Kafka is away.
    """
    topic = commits_topic(app)
    there = describe(kafka.admin(), [topic]).get(topic)
    if there is None:
        return []
    with ThreadPoolExecutor(min(_AT_ONCE, there.partitions)) as pool:
        return list(pool.map(partial(last_marker, kafka, app), range(there.partitions)))


def _way_out(app: str) -> str:
    return f"'holdfast repair topology {app}' writes it anew from what hosts remember"
