"""What an exchange tells of the dead letters that users' functions have made."""

from __future__ import annotations

from pathlib import Path

import orjson
import pyarrow as pa

from state_lib.executor.exchange import Raised, exchange
from state_lib.executor.plan import DEAD, BatchPlan, ExchangePlan
from state_lib.protocol.positions import Positions
from state_lib.specs import StoreSpec, Topology
from state_lib.testing.tasks import EPOCH, Tasks

SOURCES = Positions({("t", 0): 9})


def letter(offset: int, reason: str, exception: str | None = None) -> bytes:
    place = {"topic": "t", "partition": 0, "offset": offset, "timestamp": 1}
    raised = {} if exception is None else {"exception": exception}
    return orjson.dumps({**place, "reason": reason, **raised})


def test_it_tells_how_many_there_are_by_their_reasons_and_what_was_raised_first(
    tmp_path: Path,
) -> None:
    letters = [
        letter(0, "failed:k", "ValueError: first"),
        letter(1, "failed:k", "ValueError: second"),
        letter(2, "undecodable", "of Avro"),
    ]
    table = pa.table(
        {
            "task": pa.array([0] * 3, pa.int32()),
            "kind": pa.array([DEAD] * 3, pa.int32()),
            "key": pa.array(letters, pa.binary()),
            "n": pa.array([1] * 3),
            "src": pa.array([0] * 3, pa.int32()),
            "ts": pa.array([1] * 3),
        }
    )
    batch = BatchPlan(EPOCH, 1, Positions(), SOURCES, 3, 5, 0, {})
    plan = ExchangePlan("app", 1, (), batch, (), None, 5.0)
    tasks, raised = Tasks(Topology("app", 1, (StoreSpec("s"),), ()), tmp_path), Raised()
    try:
        marker = exchange(plan, 0, table, tasks, raised)
        assert raised == {"failed:k": (2, "ValueError: first")}
        assert marker.dropped == {"failed:k": 2, "undecodable": 1}
        assert exchange(plan, 0, table, tasks) == marker
    finally:
        tasks.close()
