"""Which recorded batches are repeated together, as one batch of Spark's and one commit.

A stream that has caught up makes many small batches. Repeated one by one they take at least as long
as they took then; a run of them takes as long as one batch. (docs/adr/0023)

With processors or folds each batch is repeated by itself, as their results depend on how the stream
was cut into batches. Only such applications have ticks, which keep their place among the batches.
(docs/adr/0024)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from state_lib.changelog.progress import Recorded
from state_lib.driver.versions import Chain
from state_lib.kafka import Partition

MOST_BATCHES = 1_000
"""Batches in a run: each is recorded once more before it, and decides on its own rows."""


@dataclass(frozen=True)
class Step:
    """A recorded batch to be repeated, and the bounds between which it is.

    They may lie within the batch: it begins at the tasks' positions, and nothing beyond the
    foremost of all tasks is repeated.
    """

    batch: Recorded
    at: dict[Partition, int]
    to: dict[Partition, int]

    @classmethod
    def of(
        cls, batch: Recorded, at: Mapping[Partition, int], target: Mapping[Partition, int]
    ) -> Step:
        """The part of a batch from some positions up to a target.

        Partitions that the batch did not know yet keep their positions.
        """
        to = {p: max(at[p], min(batch.to.get(p, at[p]), o)) for p, o in target.items()}
        return cls(batch, {p: at[p] for p in target}, to)

    @property
    def records(self) -> int:
        """Number of offsets that it reads."""
        return sum(self.to.values()) - sum(self.at.values())

    @property
    def is_to_its_end(self) -> bool:
        """Whether it ends where the batch ended."""
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
    """A batch, and those after it that may be repeated together with it.

    Args:
        first: the tasks' next batch.
        chain: the `effective` batches.
        target: positions beyond which nothing is repeated.
        places: positions of tasks, and those up to which their outputs were written. A run ends at
            the next of them, and crosses none.
        most_records: greatest number of records in a run from some positions on; called only if
            there is more than one batch.
        alone: whether the batch is repeated by itself in any case, as with ticks.
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
    """Whether two batches differ only in bounds and times, and stream time did not go back."""
    return (
        one.code == after.code
        and one.limits == after.limits
        and one.unknown == after.unknown
        and one.to.keys() == after.to.keys()
        and one.stream_time_ms <= after.stream_time_ms
    )
