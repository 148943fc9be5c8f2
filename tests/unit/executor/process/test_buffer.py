"""What a processor reads and changes, and its timers, over a task in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state_lib.executor.process import buffer as of_buffer
from state_lib.executor.process.buffer import Buffer
from state_lib.executor.process.timers import Timers
from state_lib.protocol.marker import CommitHeader
from state_lib.protocol.positions import Positions
from state_lib.specs import StoreSpec, Topology
from state_lib.testing.tasks import EPOCH, Tasks

KEYS = st.binary(min_size=1, max_size=2)
CHANGES = st.dictionaries(KEYS, st.none() | st.binary(max_size=2), max_size=8)


class Task:
    """One task; each exchange with it is a commit."""

    def __init__(self, folder: Path) -> None:
        self.tasks = Tasks(Topology("app", 1, (StoreSpec("s"), StoreSpec("t"))), folder)
        self.n = 0

    @contextmanager
    def buffer(self) -> Iterator[Buffer]:
        self.n += 1
        with self.tasks.exchange("app", 0, EPOCH, self.n) as exchange:
            made = Buffer(exchange, ["s", "t"])
            yield made
            made.send()
            exchange.commit(CommitHeader(EPOCH, self.n, Positions(), Positions(), 0))

    def entries(self, store: str) -> dict[bytes, bytes]:
        return dict(self.tasks[0].scan(store)[1])


@pytest.fixture
def task(tmp_path: Path) -> Iterator[Task]:
    made = Task(tmp_path)
    yield made
    made.tasks.close()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(CHANGES, CHANGES, st.booleans()), min_size=1, max_size=3), KEYS)
def test_it_is_as_a_dict(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[tuple[dict[bytes, Any], dict[bytes, Any], bool]],
    bound: bytes,
) -> None:
    task = Task(tmp_path_factory.mktemp("task"))
    model: dict[bytes, Any] = {}

    def apply(changes: dict[bytes, Any]) -> None:
        for key, value in changes.items():
            model[key] = value
        for key in [k for k, v in model.items() if v is None]:
            del model[key]

    try:
        for first, second, held in batches:
            with task.buffer() as buffer:
                buffer.fetch("s", list(model)[:1])
                for key, value in first.items():
                    buffer.put("s", key, value)
                apply(first)
                buffer.keep(5)
                before = dict(model)
                for key, value in second.items():
                    buffer.put("s", key, value)
                apply(second)
                seen = {key: buffer.get("s", key) for key in [*first, *second, *before]}
                assert {k: v for k, v in seen.items() if v is not None} == model
                found = list(buffer.entries("s", bound, None))
                assert found == sorted(e for e in model.items() if e[0] >= bound)
                low = list(buffer.entries("s", b"", bound))
                assert low == sorted(e for e in model.items() if e[0] < bound)
                if held:
                    buffer.keep(6)
                else:
                    buffer.drop()
                    model = before
            assert task.entries("s") == model
    finally:
        task.tasks.close()


def test_an_iterator_is_of_its_moment(task: Task) -> None:
    with task.buffer() as buffer:
        buffer.put("s", b"a", b"1")
        found = buffer.entries("s", b"", None)
        buffer.put("s", b"b", b"2")
        assert list(found) == [(b"a", b"1")]
        buffer.keep(1)


def test_pages_of_what_is_stored_meet_changes(task: Task) -> None:
    many = {b"%05d" % i: b"x" for i in range(700)}
    with task.buffer() as buffer:
        for key, value in many.items():
            buffer.put("s", key, value)
        buffer.keep(1)
    with task.buffer() as buffer:
        buffer.put("s", b"00500", None)
        buffer.put("s", b"00500a", b"y")
        wanted = sorted(({**many, b"00500a": b"y"}.keys()) - {b"00500"})
        assert [key for key, _ in buffer.entries("s", b"", None)] == wanted
        buffer.drop()
    assert task.entries("s") == many


def test_what_is_remembered_has_a_bound_and_what_was_fetched_ahead_stays(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_buffer, "_MOST_BYTES", 1000)
    with task.buffer() as buffer:
        for number in range(20):
            buffer.put("s", b"%02d" % number, b"x" * 100)
        buffer.keep(1)
    with task.buffer() as buffer:
        buffer.fetch("s", [b"%02d" % number for number in range(10)])
        for number in (*range(20), *range(20)):
            assert buffer.get("s", b"%02d" % number) == b"x" * 100
            assert buffer.get("s", b"none") is None
        assert len(buffer._ahead["s"]) == 10
        held = sum(len(v or b"") for v in buffer._read["s"].values())
        assert held <= 1000


def test_a_read_that_fails_is_remembered(task: Task) -> None:
    with task.buffer() as buffer:
        with pytest.raises(Exception, match="nobody"):
            list(buffer._stored.page("nobody", b"", None, 1).entries)
        buffer._ahead["nobody"], buffer._read["nobody"] = {}, {}
        buffer._changed["nobody"] = buffer._changed["s"].copy()
        buffer._aside["nobody"] = {}
        with pytest.raises(Exception, match="nobody") as raised:
            buffer.get("nobody", b"a")
        assert buffer.broken is raised.value


# ---------------------------------------------------------------------- timers


def ran(timers: Timers, until: int, buffer: Buffer) -> list[tuple[int, bytes]]:
    found = []
    for expiry, key in timers.due(until, lambda _: None):
        found.append((expiry, key))
        timers.delete(key, expiry)
        buffer.keep(0)
    return found


@settings(max_examples=40, deadline=None)
@given(
    st.sets(st.tuples(st.integers(-5, 5), KEYS)),
    st.sets(st.tuples(st.integers(-5, 5), KEYS)),
    st.sets(st.tuples(st.integers(-5, 5), KEYS)),
    st.integers(-6, 6),
)
def test_timers_run_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    stored: set[tuple[int, bytes]],
    made: set[tuple[int, bytes]],
    gone: set[tuple[int, bytes]],
    until: int,
) -> None:
    task = Task(tmp_path_factory.mktemp("task"))
    try:
        with task.buffer() as buffer:
            timers = Timers(buffer, "t")
            for expiry, key in stored:
                timers.register(key, expiry)
            buffer.keep(0)
        with task.buffer() as buffer:
            timers = Timers(buffer, "t")
            for expiry, key in made:
                timers.register(key, expiry)
            for expiry, key in gone:
                timers.delete(key, expiry)
            buffer.keep(0)
            left = (stored | made) - gone
            for key in {key for _, key in left}:
                assert list(timers.of(key)) == sorted(e for e, k in left if k == key)
            assert ran(timers, until, buffer) == sorted(t for t in left if t[0] <= until)
            after = {t for t in left if t[0] > until}
            assert timers.least() == min((e for e, _ in after), default=None)
        assert len(task.entries("t")) == 2 * len(after)
    finally:
        task.tasks.close()


def test_keys_are_told_ahead_page_by_page(task: Task) -> None:
    keys = [b"%04d" % i for i in range(300)]
    with task.buffer() as buffer:
        timers = Timers(buffer, "t")
        for key in keys:
            timers.register(key, 7)
        timers.register(b"later", 8)
        buffer.keep(0)
    told: list[bytes] = []
    with task.buffer() as buffer:
        timers = Timers(buffer, "t")

        def ahead(some: Sequence[bytes]) -> None:
            told.extend(some)

        for expiry, key in timers.due(7, ahead):
            assert (expiry, key) == (7, keys[keys.index(key)])
            assert key in told
            timers.delete(key, expiry)
            buffer.keep(0)
        assert told == keys
        assert timers.least() == 8


def test_what_a_handler_registers_runs_if_it_comes_later(task: Task) -> None:
    with task.buffer() as buffer:
        timers = Timers(buffer, "t")
        timers.register(b"b", 5)
        buffer.keep(0)
        found = []
        for expiry, key in timers.due(10, lambda _: None):
            found.append((expiry, key))
            if expiry < 9:
                timers.register(b"b", expiry + 2)
                timers.register(b"a", expiry)
                buffer.keep(0)
                timers.register(b"c", expiry)
                buffer.drop()
            timers.delete(key, expiry)
            buffer.keep(0)
        assert found == [(5, b"b"), (7, b"b"), (9, b"b")]
        assert timers.least() == 5, "those of a are left for the next batch"
