"""Brings all tasks to one position before the stream starts (docs/protocol.md, "The driver")."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import orjson
import structlog
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame

from state_lib.changelog.progress import Recorded, effective, ticks
from state_lib.driver.patience import never
from state_lib.driver.runs import Step, run_of
from state_lib.driver.versions import Chain, behind
from state_lib.errors import ConfigurationError, TopicRecreated
from state_lib.kafka import Partition, TopicFacts, starts
from state_lib.protocol.marker import Marker
from state_lib.protocol.positions import Numbers, Positions
from state_lib.spark.batches import Batches

log = structlog.get_logger(__name__)
Read = Callable[[str, str], DataFrame]
"""Reads source topics between two positions, given as Spark's offset JSON."""


def check_topics(markers: Sequence[Marker], facts: dict[str, TopicFacts]) -> None:
    """Refuse a source whose topic is another one than the markers know.

    Raises:
        TopicRecreated: naming the topic and both ids.
    """
    for marker in markers:
        for topic, known in marker.topic_ids.items():
            if topic in facts and facts[topic].id != known:
                raise TopicRecreated(
                    f"source topic {topic!r} was deleted and created again (its id was {known}, is "
                    f"{facts[topic].id}): offsets in the stores' markers mean nothing there. Use "
                    "another application id, or bring the old topic back",
                    topic=topic,
                    expected_id=known,
                    actual_id=facts[topic].id,
                )


def initial_positions(
    admin: AdminClient, markers: Sequence[Marker], facts: dict[str, TopicFacts]
) -> list[Positions]:
    """Per task, its positions with every partition of every source resolved to a number.

    What another task knows already is taken from there: it cannot have moved before all had it.
    """
    known: dict[Partition, int] = {}
    for marker in markers:
        known |= marker.positions
    wanted: set[Partition] = {(t, p) for t, f in facts.items() for p in range(f.partitions)}
    resolved = starts(admin, wanted - set(known))
    return [
        Positions({p: m.positions.get(p, known.get(p, resolved.get(p, 0))) for p in wanted})
        for m in markers
    ]


def align(
    batches: Batches,
    read: Read,
    records: Callable[[int], Sequence[Recorded]],
    stopped: Callable[[], bool],
) -> bool:
    """Repeat recorded batches and ticks for tasks that are behind, until all stand at the foremost.

    Many that follow one another are repeated together: see `state_lib.driver.runs`.

    That is also up to where outputs were written: after a restore to the past all tasks may be
    behind it. What all of them have to repeat, the present code may: no row is lost or doubled.
    Where parked tasks stand counts, too, but they repeat nothing: see `state_lib.spark.parking`.

    Returns:
        Whether they do; False if ``stopped`` said so between two batches.

    Raises:
        ConfigurationError: the progress log does not cover the range, or ticks within it.
        CodeChanged: the batch was begun by other code.
        Unjudged: a row was read that is in none of the batches that are repeated together.
    """
    standing = batches.standing
    at: list[Numbers] = [m.positions for m in standing.markers]
    published = [m.published_to for m in standing.markers]
    target = Positions({p: max(x.get(p, 0) for x in (*at, *published)) for p in at[0]})
    if timed := batches.has_timers:
        batches.begin()
    since = min(m.taken(standing.log) for m in standing.markers)
    said = cache(lambda: records(since))
    chain = Chain(lambda: effective(said()), lambda: ticks(said()))
    while True:
        if stopped():
            return False
        present = standing.present
        taken = [standing.markers[p].taken(standing.log) for p in present] if timed else []
        found = behind([at[p] for p in present], chain, [*at, *published], taken)
        if found is None:
            break
        least, recorded = found.positions, found.batch
        group = [present[i] for i in found.tasks]
        if recorded is None:
            raise lost(group, least, target)
        if len(group) < len(at):
            batches.check_code(recorded, group)
        first, places = Step.of(recorded, least, target), (*at, *published)
        alone = batches.depends_on_cut
        steps = run_of(first, chain, target, places, batches.most_records, alone=alone)
        to = repeat(batches, read, steps, group, chain.left)
        for task in group:
            if task not in standing.parked:
                at[task] = to
    standing.positions = target
    return not stopped()


def repeat(
    batches: Batches,
    read: Read,
    steps: Sequence[Step],
    tasks: Sequence[int],
    left: int,
    stopped: Callable[[], bool] = never,
) -> Numbers:
    """Repeat a run, or one tick, for tasks that stand at its begin; returns where it leads them.

    Args:
        batches: what repeats it.
        read: what reads its rows.
        steps: the run.
        tasks: that missed it.
        left: how many batches there are from its last one on: for who watches.
        stopped: whether nobody who is away is to be waited for any more.
    """
    at, to = steps[0].at, steps[-1].to
    is_tick = steps[0].batch.tick
    ahead = {"batches": len(steps), "batches_left": left - 1}
    said = {"tick": steps[0].batch.batch_number} if is_tick else ahead
    log.info("aligning", tasks=list(tasks), rows=sum(to.values()) - sum(at.values()), **said)
    rows = None if is_tick else read(_offsets(at), _offsets(to))
    batches.align(rows, steps, tasks, stopped)
    return to


def lost(tasks: Sequence[int], at: Numbers, target: Numbers) -> ConfigurationError:
    """The error for tasks that stand behind others, with no record of what they have next."""
    return ConfigurationError(
        f"tasks {list(tasks)} stand at {Positions(at)}, behind {Positions(target)}, and no record "
        "of the progress topic covers that: it was deleted or cut short. Use another application "
        "id, or bring the topic back",
        tasks=list(tasks),
    )


def _offsets(positions: Numbers) -> str:
    return orjson.dumps(Positions(positions).to_json()).decode()
