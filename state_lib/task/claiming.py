"""Who may take a task: the driver of the newest claim in the present topology topic.

An epoch is the offset of a claim in ``<app>-topology``. If the topic is deleted and created again,
offsets start from 0: epochs can be compared only within one topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from state_lib.changelog.claims import Claim, newest_claim
from state_lib.changelog.lasts import last_records
from state_lib.changelog.topics import commits_topic, topology_topic
from state_lib.errors import Superseded, TopicRecreated
from state_lib.kafka import Kafka, describe
from state_lib.protocol.marker import Marker, Verdict
from state_lib.task.opening import marker_of


def judge_claim(task: str, marker: Marker, epoch: int, topic_id: str) -> Verdict:
    """Decide whether the driver of a claim may take a task.

    Args:
        task: ``<app>/<partition>``.
        marker: of the task.
        epoch: of the claim.
        topic_id: of the topology topic that holds the claim; empty if not known.

    Returns:
        Whether to take the task, or that this claim has taken it already.

    Raises:
        Superseded: a newer driver has it.
        TopicRecreated: a driver with the same or a higher epoch has it, whose claim was in a topic
            that was deleted since then.
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
    """Whether a claim may take all tasks of an application, or has taken them.

    A restore to the past has an epoch but no claim: the last claim before it still counts.
    """
    try:
        for partition, marker in enumerate(markers):
            claimed = replace(marker, epoch=marker.claim)
            judge_claim(f"{app}/{partition}", claimed, epoch, topic_id)
    except (Superseded, TopicRecreated):
        return False
    return True


def outran(task: str, marker: Marker, epoch: int, topic_id: str) -> TopicRecreated:
    """The error for a claim in a new topic, whose offsets have not reached the old epochs yet."""
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

    A claim that the tasks would refuse does not count: its driver was refused, and its topology was
    compared with no other.

    Raises:
        TopicRecreated: its tasks were claimed, but the topology topic has lost that claim.
    """
    claim = newest_claim(kafka, app)
    if claim is not None and claim.notice is not None:
        return claim
    markers = standing(kafka, app)
    newest = max(markers, key=lambda marker: marker.epoch, default=Marker())
    topic = topology_topic(app)
    there = describe(kafka.admin(), [topic]).get(topic)
    if newest.epoch < 0:
        return claim
    if claim is not None and there is not None and would_take(app, markers, claim.epoch, there.id):
        return claim
    again = newest_claim(kafka, app)
    if again is not None and (claim is None or claim.epoch != again.epoch):
        return claim_or_none(kafka, app)  # a claim came meanwhile, and has taken tasks
    holds = "no claim" if claim is None else f"only claims up to epoch {claim.epoch}, of another"
    raise TopicRecreated(
        f"topic {topic!r} {'does not exist' if there is None else f'holds {holds}'}, and tasks of "
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
    last = last_records(kafka, topic, range(there.partitions))
    return [marker_of(record) for record in last]


def _way_out(app: str) -> str:
    return f"'holdfast repair topology {app}' writes it anew from what hosts remember"
