"""Which recorded batches are repeated together, as one batch of Spark's and one commit.

A stream that runs near its head makes many small batches. Repeated one by one they take as long as
they took then, or longer; a run of them takes as long as one. (docs/adr/0023)

Each batch of an application that runs Python per key is a step of its own: what that does depends
on how the stream was cut. Only such have ticks, each in its place among them. (docs/adr/0024)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from state_lib.changelog.progress import Recorded
from state_lib.driver.versions import Chain
from state_lib.kafka import Partition

MOST_BATCHES = 1_000
"""In a run: each is recorded once more before it, and judges its own rows."""


@dataclass(frozen=True)
class Step:
    """A recorded batch that is repeated, from where to where.

    It may begin within the batch, and end there: tasks stand where they stand, and nothing is
    repeated that lies beyond all of them.
    """

    batch: Recorded
    at: dict[Partition, int]
    to: dict[Partition, int]

    @classmethod
    def of(
        cls, batch: Recorded, at: Mapping[Partition, int], target: Mapping[Partition, int]
    ) -> Step:
        """What a batch is for tasks at some positions, up to others.

        They stay where they are in partitions that the batch did not know yet.
        """
        to = {p: max(at[p], min(batch.to.get(p, at[p]), o)) for p, o in target.items()}
        return cls(batch, {p: at[p] for p in target}, to)

    @property
    def records(self) -> int:
        """Offsets that it reads."""
        return sum(self.to.values()) - sum(self.at.values())

    @property
    def is_to_its_end(self) -> bool:
        """Whether it leads to where the batch ended."""
        return all(self.to.get(p) == end for p, end in self.batch.to.items())


def run_of(
    first: Step,
    chain: Chain,
    target: Mapping[Partition, int],
    places: Collection[Mapping[Partition, int]],
    most_records: Callable[[dict[Partition, int]], int],
    *,
    alone: bool,
) -> list[Step]:
    """A batch, and those after it that may be repeated with it: what one by one would come next.

    Args:
        first: what tasks have next.
        chain: the batches that stand.
        target: beyond which nothing is repeated.
        places: where tasks stand, and up to where their outputs were written. A run ends at the
            next one ahead, and never leads over one.
        most_records: of a run that begins at some positions; asked only if one batch is not all.
        alone: whether that is all in any case, as with ticks.
    """
    if alone:
        return [first]
    steps, records = [first], first.records
    ahead = [x for x in places if any(first.at.get(p, o) < o for p, o in x.items())]
    bound: int | None = None
    while len(steps) < MOST_BATCHES and steps[-1].is_to_its_end:
        before, here, last = chain.at, steps[-1].to, steps[-1].batch
        batch = chain.next_of(here) if here != target else None
        if batch is None or not _are_alike(last, batch):
            chain.at = before
            break
        step = Step.of(batch, here, target)
        bound = most_records(first.at) if bound is None else bound
        if (
            step.records == 0
            or records + step.records > bound
            or any(step.to.get(p, 0) > o for x in ahead for p, o in x.items())
        ):
            chain.at = before
            break
        steps.append(step)
        records += step.records
    return steps


def _are_alike(one: Recorded, after: Recorded) -> bool:
    """Whether only their bounds and times differ, and stream time did not go back."""
    return (
        one.code == after.code
        and one.limits == after.limits
        and one.unknown == after.unknown
        and one.to.keys() == after.to.keys()
        and one.stream_time_ms <= after.stream_time_ms
    )
