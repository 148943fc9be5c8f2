"""How far a recorded batch is repeated for tasks that missed it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from state_lib.changelog.progress import Recorded
from state_lib.driver.runs import Step
from state_lib.kafka import Partition
from state_lib.protocol.positions import Positions
from state_lib.spark.align import repeat

P, NEW = ("t", 0), ("t", 1)


@pytest.mark.parametrize(
    ("at", "target", "to"),
    [
        ({P: 0, NEW: 0}, {P: 30, NEW: 50}, {P: 10, NEW: 0}),
        ({P: 4, NEW: 7}, {P: 30, NEW: 50}, {P: 10, NEW: 7}),
        ({P: 0, NEW: 0}, {P: 5, NEW: 50}, {P: 5, NEW: 0}),
    ],
)
def test_a_partition_that_the_batch_did_not_know_is_not_read_by_its_clock(
    at: dict[Partition, int], target: dict[Partition, int], to: dict[Partition, int]
) -> None:
    """It was added while the task was behind: a later batch has its rows."""
    done: list[Any] = []
    batches: Any = SimpleNamespace(align=lambda *args: done.append(args))
    step = Step.of(Recorded(1, 3, {P: 0}, {P: 10}, 0, 0), at, target)

    def read(*bounds: str) -> Any:
        return tuple(map(orjson.loads, bounds))

    assert repeat(batches, read, [step], [1], 1) == to
    assert [one[:3] for one in done] == [
        ((Positions(at).to_json(), Positions(to).to_json()), [step], [1])
    ]
    assert (step.at, step.to) == (at, to)
