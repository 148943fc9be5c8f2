"""Which recorded batches are repeated together for a task that missed them. No Spark, no Kafka."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from state_lib.changelog.progress import Recorded
from state_lib.protocol.marker import Marker
from state_lib.protocol.positions import Positions
from state_lib.spark.align import align

P = ("t", 0)
CHAIN = [Recorded(1, n, {P: n}, {P: n + 1}, 0, 0, offset=n) for n in range(3)]


@pytest.mark.parametrize(
    ("depends_on_cut", "repeated"), [(True, [[0], [1], [2]]), (False, [[0, 1, 2]])]
)
def test_rows_that_meet_python_in_order_are_repeated_batch_by_batch(
    depends_on_cut: bool, repeated: list[list[int]]
) -> None:
    """As of folds, which have no timers: nobody asks for ticks."""
    found, begun = list[tuple[list[int], list[int]]](), list[int]()

    def repeat(_: Any, steps: Any, tasks: Any, *_stopped: Any) -> None:
        found.append(([step.batch.batch_number for step in steps], list(tasks)))

    batches: Any = SimpleNamespace(
        standing=SimpleNamespace(
            markers=[Marker(positions=Positions({P: 3})), Marker(positions=Positions({P: 0}))],
            present=[0, 1],
            parked={},
            log="",
        ),
        has_timers=False,
        depends_on_cut=depends_on_cut,
        most_records=lambda _: 1000,
        check_code=lambda *_: None,
        begin=lambda: begun.append(1),
        align=repeat,
    )
    nothing: Any = lambda *_: None  # noqa: E731
    assert align(batches, nothing, lambda _: CHAIN, lambda: False)
    assert found == [(numbers, [1]) for numbers in repeated]
    assert begun == []
    assert batches.standing.positions == {P: 3}
