"""One processor over one task in this process, on entries as Spark would bring them. No JVM."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.types import LongType, StructField, StructType

from state_lib.executor.plan import BatchPlan, ExchangePlan
from state_lib.executor.process.codec import RowCodec
from state_lib.executor.process.pace import Pace
from state_lib.executor.process.run import Told, run_all
from state_lib.processing import Processor, State
from state_lib.protocol.marker import CommitHeader
from state_lib.protocol.positions import Positions
from state_lib.specs import OutputSpec, StoreSpec, Topology
from state_lib.stores.pages import Page
from state_lib.testing.tasks import EPOCH, Tasks
from tests.support.entries import ROWS, SOURCES
from tests.support.processors import Doing

LONG = StructType([StructField("x", LongType())])
STATE = State("n", "value", LONG.json())
SOURCES_ORDER = BatchPlan(0, 0, Positions(), SOURCES, 0, 0, 0, {}).sources()


def total(self: Any, key: Any, rows: Any, times: Any) -> Any:
    n = (self.n.get() or (0,))[0]
    for row in rows:
        n += row.x
        self.n.update((n,))
        if row.x < 0:
            raise ValueError("below zero")
    self.handle.registerTimer(n)
    yield Row(x=n, k=f"{key[0]}@{times.getCurrentWatermarkInMs()}")


def tell(_: Any, key: Any, __: Any, info: Any) -> Any:
    if info.getExpiryTimeInMs() == 13:
        raise KeyError("unlucky")
    yield Row(k=key[0], x=-info.getExpiryTimeInMs())


def processor(**more: Any) -> Processor:
    asked = {"n": lambda handle, name: handle.getValueState(name, "x BIGINT")}
    code = cloudpickle.dumps(Doing(asked, total, tell))
    made = Processor(
        "p", code, (STATE,), ROWS.json(), ROWS.json(), "utf8", "eventtime", outputs=("out",)
    )
    return replace(made, **more)


class Noting:
    """An exchange, and how many reads of each store went through it."""

    def __init__(self, exchange: Any, reads: Counter[str]) -> None:
        self._exchange, self._reads = exchange, reads
        self.put, self.output = exchange.put, exchange.output

    def get(self, store: str, keys: pa.BinaryArray) -> pa.BinaryArray:
        self._reads[store] += 1
        return self._exchange.get(store, keys)

    def page(self, store: str, lower: bytes | None, upper: bytes | None, rows: int) -> Page:
        self._reads[store] += 1
        page: Page = self._exchange.page(store, lower, upper, rows)
        return page


class World:
    def __init__(self, folder: Path) -> None:
        self.reads = Counter[str]()
        stores = (StoreSpec("p-timers"), StoreSpec("p-n", key_serde="utf8"))
        self.tasks = Tasks(Topology("app", 1, stores, (OutputSpec("out", "p-n"),)), folder)
        self.n, self.outputs_seen = 0, 0

    def close(self) -> None:
        self.tasks.close()

    def tick(self, clock: int) -> tuple[list[tuple[str, int]], dict[str, int], bool]:
        """Run timers; what they said, what is due next, and whether more were due."""
        told = self.run(None, clock)
        new = self.outputs()[self.outputs_seen :]
        self.outputs_seen += len(new)
        return [(k, x) for _, k, x, _ in new], told.due, told.overdue

    def run(self, table: pa.Table | None, clock: int, **more: Any) -> Told:
        self.n += 1
        limits, pace = {"p": more.pop("limit", 1000)}, more.pop("pace", Pace(0, 5.0))
        batch = BatchPlan(EPOCH, self.n, Positions(), SOURCES, clock, 5, 0, {}, limits=limits)
        batch = replace(batch, batch_time=5)
        plan = ExchangePlan("app", 1, (), batch, (), None, 5.0, processors=(processor(**more),))
        with self.tasks.exchange("app", 0, EPOCH, self.n) as exchange:
            told = run_all(plan, 0, Noting(exchange, self.reads), table, pace)
            exchange.commit(
                CommitHeader(EPOCH, self.n, Positions(), Positions(), clock, due=told.due)
            )
        return told

    def state(self) -> dict[bytes, int]:
        codec = RowCodec(LONG)
        return {k: codec.unpack(v)[0] for k, v in self.tasks[0].scan("p-n")[1]}

    def outputs(self) -> list[tuple[Any, ...]]:
        found = [m for some in self.tasks.log.read("out", 0, 0, 1 << 62) for m in some]
        return [
            (m.key(), *orjson.loads(m.value() or b"{}").values(), m.timestamp()[1]) for m in found
        ]
