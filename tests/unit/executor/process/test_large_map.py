"""A map of a million entries that one row touches: what is read, sent and waited for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.types import LongType, StructField, StructType

from state_lib.executor.plan import BatchPlan, ExchangePlan
from state_lib.executor.process import layout
from state_lib.executor.process.codec import RowCodec
from state_lib.executor.process.pace import Pace
from state_lib.executor.process.run import run_all
from state_lib.processing import Processor, State
from state_lib.protocol.marker import CommitHeader
from state_lib.protocol.positions import Positions
from state_lib.specs import OutputSpec, StoreSpec, Topology
from state_lib.stores.pages import PAGE_BYTES, Page
from state_lib.testing.tasks import EPOCH, Tasks
from tests.support.entries import ROWS, SOURCES, entries
from tests.support.processors import Doing
from tests.support.waiting import SLOWNESS

MANY, CHUNK = 1_000_000, 100_000
LONG = StructType([StructField("x", LongType())])
STATES = (State("by", "map", LONG.json(), LONG.json()),)
STORES = (StoreSpec("p-timers"), StoreSpec("p-by"))
CODEC, PREFIX = RowCodec(LONG), layout.prefixed(b"a")


class Measured:
    """An exchange, and how many bytes and entries went through it."""

    def __init__(self, exchange: Any) -> None:
        self._exchange, self.read, self.entries, self.largest = exchange, 0, 0, 0
        self.output, self.sent = exchange.output, dict[str, int]()

    def get(self, store: str, keys: pa.BinaryArray) -> pa.BinaryArray:
        found: pa.BinaryArray = self._exchange.get(store, keys)
        self._count(len(found), found.nbytes)
        return found

    def page(self, store: str, lower: bytes | None, upper: bytes | None, rows: int) -> Page:
        page: Page = self._exchange.page(store, lower, upper, rows)
        self._count(len(page.entries), page.column().nbytes)
        return page

    def put(self, store: str, keys: Any, values: Any, timestamps: Any) -> None:
        self.sent[store] = len(keys)
        self._exchange.put(store, keys, values, timestamps)

    def _count(self, entries: int, size: int) -> None:
        self.entries, self.read = self.entries + entries, self.read + size
        self.largest = max(self.largest, size)


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tasks]:
    """A map of key ``a``, written as sorted files: a commit of so much would take a minute."""
    folder = tmp_path_factory.mktemp("large")
    made = Tasks(Topology("app", 1, STORES, (OutputSpec("out", "p-by"),)), folder / "tasks")
    assert CODEC.pack((MANY,)) == b"\0" + MANY.to_bytes(8, "big")
    packed = (b"\0" + n.to_bytes(8, "big") for n in range(MANY))
    paths = []
    with made[0].view() as (_, stores):
        engine = stores.engine("p-by")
        for begin in range(0, MANY, CHUNK):
            values: list[bytes | None] = [next(packed) for _ in range(CHUNK)]
            paths.append(folder / f"{begin}.sst")
            engine.write_run(paths[-1], [PREFIX + (v or b"") for v in values], values)
        engine.ingest("p-by", paths)
    yield made
    made.close()


def run(tasks: Tasks, n: int, on_rows: Any, *rows: tuple[str, int]) -> Measured:
    """One batch."""
    asked = {"by": lambda handle, name: handle.getMapState(name, "x BIGINT", "x BIGINT")}
    code = cloudpickle.dumps(Doing(asked, on_rows))
    processor = Processor(
        "p", code, STATES, ROWS.json(), ROWS.json(), "utf8", "none", outputs=("out",)
    )
    batch = BatchPlan(EPOCH, n, Positions(), SOURCES, 0, 5, 0, {}, limits={"p": 1000})
    batch = replace(batch, batch_time=5)
    plan = ExchangePlan("app", 1, (), batch, (), None, 60.0, processors=(processor,))
    table = entries(*((key, x, 0, 0, offset) for offset, (key, x) in enumerate(rows)))
    with tasks.exchange("app", 0, EPOCH, n) as exchange:
        measured = Measured(exchange)
        told = run_all(plan, 0, measured, table, Pace(0, 60.0))
        assert told.letters == []
        exchange.commit(CommitHeader(EPOCH, n, Positions(), Positions(), 0))
    return measured


def test_one_row_reads_what_it_touches(tasks: Tasks) -> None:
    def touch(self: Any, key: Any, rows: Any, _: Any) -> Any:
        for row in rows:
            (old,) = self.by.getValue((row.x,))
            self.by.updateValue((row.x,), (old + 1,))
            self.by.updateValue((-row.x,), (0,))
            assert self.by.containsKey((row.x,))
            assert not self.by.containsKey((MANY,))
            assert self.by.exists()
            yield Row(k=key[0], x=old)

    began = time.monotonic()
    measured = run(tasks, 1, touch, ("a", 700_000))
    took = time.monotonic() - began
    assert measured.entries < 200
    assert measured.read < 16 << 10
    assert measured.sent == {"p-by": 2}
    assert took < 5 * SLOWNESS
    entry = PREFIX + CODEC.pack((700_000,))
    assert tasks[0].get_many("p-by", [entry])[1] == [CODEC.pack((700_001,))]


def test_a_part_of_it_is_read_in_bounded_pages(tasks: Tasks) -> None:
    """Whoever stops before the end has read little more than was looked at."""
    half = 50_000

    def look(self: Any, key: Any, rows: Any, _: Any) -> Any:
        del rows
        seen = [x for x, _ in zip(self.by.keys(), range(half), strict=False)]
        yield Row(k=key[0], x=len(seen))

    measured = run(tasks, 2, look, ("a", 1))
    assert half <= measured.entries < half + 10_000
    assert measured.largest < 2 * PAGE_BYTES
    assert measured.sent == {}


def test_a_key_beside_it_reads_none_of_it(tasks: Tasks) -> None:
    """Of ``aa`` and of the empty key there is nothing, however near their entries would lie."""

    def look(self: Any, key: Any, rows: Any, _: Any) -> Any:
        del rows
        yield Row(k=key[0], x=len(list(self.by.iterator())))

    measured = run(tasks, 3, look, ("aa", 1), ("", 1))
    assert (measured.entries, measured.sent) == (0, {})
