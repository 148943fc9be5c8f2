"""A range of a store, page by page, from both backends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from state_lib.errors import InvalidRequest, Moved, NotFound
from state_lib.protocol.marker import CommitHeader
from state_lib.protocol.positions import Positions
from state_lib.specs import StoreSpec, Topology
from state_lib.stores.pages import PAGE_BYTES, Page
from state_lib.testing.tasks import EPOCH, Tasks

ENTRIES = [(b"k%03d" % i, b"v%d" % i) for i in range(100)]
WINDOWS = StoreSpec("w", "window", window_size_ms=1000, retention_ms=100_000)


@pytest.fixture(params=["rocksdb", "memory"])
def tasks(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tasks]:
    spec = StoreSpec("s", backend=request.param)
    made = Tasks(Topology("app", 1, (spec, WINDOWS)), tmp_path)
    put(made, 1, ENTRIES)
    yield made
    made.close()


def put(tasks: Tasks, n: int, entries: list[tuple[bytes, bytes]]) -> None:
    with tasks.exchange("app", 0, EPOCH, n) as exchange:
        keys, values = (pa.array(part, pa.binary()) for part in zip(*entries, strict=True))
        exchange.put("s", keys, values, pa.array([1] * len(entries), pa.int64()))
        exchange.commit(CommitHeader(EPOCH, n, Positions(), Positions(), 0))


def test_pages_follow_one_another(tasks: Tasks) -> None:
    with tasks.exchange("app", 0, EPOCH, 2) as exchange:
        lower, found, sizes = b"k010", list[tuple[bytes, bytes]](), []
        while True:
            page = exchange.page("s", lower, b"k090", 30)
            found += page.entries
            sizes.append((len(page.entries), page.more))
            if not page.more:
                break
            lower = page.entries[-1][0] + b"\0"
        assert found == ENTRIES[10:90]
        assert sizes == [(30, True), (30, True), (20, False)]
        assert exchange.page("s", None, None, 100) == Page(ENTRIES, more=False)
        assert exchange.page("s", b"x", None, 5) == Page([], more=False)


def test_a_page_is_bounded_in_bytes(tasks: Tasks) -> None:
    large = [(b"l%d" % i, bytes(PAGE_BYTES // 2)) for i in range(5)]
    put(tasks, 2, large)
    with tasks.exchange("app", 0, EPOCH, 3) as exchange:
        page = exchange.page("s", b"l", None, 100)
        assert (page.entries, page.more) == (large[:2], True)


def test_all_that_an_exchange_reads_is_of_one_commit(tasks: Tasks) -> None:
    with tasks.exchange("app", 0, EPOCH, 3) as exchange:
        exchange.page("s", None, None, 1)
        put(tasks, 2, ENTRIES[:1])
        with pytest.raises(Moved):
            exchange.page("s", None, None, 1)
        with pytest.raises(Moved):
            exchange.get("s", pa.array([b"k000"], pa.binary()))


def test_what_has_no_pages_is_told(tasks: Tasks) -> None:
    with tasks.exchange("app", 0, EPOCH, 2) as exchange:
        with pytest.raises(InvalidRequest):
            exchange.page("w", None, None, 1)
        with pytest.raises(InvalidRequest):
            exchange.page("s", None, None, 0)
        with pytest.raises(NotFound):
            exchange.page("x", None, None, 1)


@pytest.mark.parametrize("entries", [[], ENTRIES[:1], [(b"", b""), (b"a", b"")]])
@pytest.mark.parametrize("more", [True, False])
def test_it_travels_as_one_column(entries: list[tuple[bytes, bytes]], more: bool) -> None:
    assert Page.of(Page(entries, more).column()) == Page(entries, more)
