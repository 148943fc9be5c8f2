"""Rows folded by functions over a task in this process, on entries as Spark would bring them."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.types import (
    ArrayType,
    DataType,
    FloatType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from state_lib.errors import ProcessorFailed, ProcessorUnready
from state_lib.executor.plan import BatchPlan, ExchangePlan
from state_lib.executor.process.arguments import from_arrow
from state_lib.executor.process.codec import RowCodec
from state_lib.executor.process.folding import Folded, _Folding
from state_lib.executor.process.given import Given
from state_lib.executor.process.pace import Pace
from state_lib.executor.process.run import run_all
from state_lib.executor.process.values import shown
from state_lib.keys import split_timestamp, window_key
from state_lib.processing import Fold, Processor, State
from state_lib.protocol.marker import CommitHeader
from state_lib.protocol.positions import Positions
from state_lib.specs import OutputSpec, StoreSpec, Topology
from state_lib.testing.tasks import EPOCH, Tasks
from tests.support.entries import ROWS, SOURCES, entries

TOTAL = StructType([StructField("n", LongType()), StructField("words", ArrayType(StringType()))])
KEYED = StoreSpec("s", "timestamped-key-value", key_serde="utf8")
HOURLY = replace(KEYED, kind="window", window_size_ms=10, retention_ms=1000)


def larger(old: Any, new: Any) -> Any:
    if new.x < 0:
        raise ValueError("below zero")
    if new.x == 0:
        return None
    if new.x == 99:
        return {"k": old.k, "x": "text"}
    return new if new.x > old.x else old


def reducing(function: Callable[..., Any] = larger, **more: Any) -> Processor:
    code = cloudpickle.dumps((None, function))
    states = (State("value", "value", ROWS.json()),)
    fold = Fold(KEYED, "")
    made = Processor("s", code, states, ROWS.json(), ROWS.json(), "utf8", "none", fold=fold)
    return replace(made, outputs=("out",), **more)


class World:
    def __init__(self, folder: Path, store: StoreSpec) -> None:
        self.tasks = Tasks(Topology("app", 1, (store,), (OutputSpec("out", "s"),)), folder)
        self.n = 0

    def run(self, verb: Processor, table: pa.Table | None, limit: int = 1000) -> list[Any]:
        self.n += 1
        batch = BatchPlan(EPOCH, self.n, Positions(), SOURCES, 3, 5, 0, {}, limits={"s": limit})
        plan = ExchangePlan("app", 1, (), batch, (), None, 5.0, processors=(verb,))
        with self.tasks.exchange("app", 0, EPOCH, self.n) as exchange:
            told = run_all(plan, 0, exchange, table, Pace(0, 5.0))
            assert told.due == {}
            exchange.commit(CommitHeader(EPOCH, self.n, Positions(), Positions(), 3, due=told.due))
        return [orjson.loads(letter) for letter in told.letters]

    def kept(self, schema: StructType = ROWS) -> dict[bytes, Any]:
        codec, found = RowCodec(schema), {}
        for key, stored in self.tasks[0].scan("s")[1]:
            value, time = split_timestamp(stored)
            found[key] = (*codec.unpack(value), time)
        return found

    def outputs(self) -> list[tuple[Any, Any, int]]:
        found = [m for some in self.tasks.log.read("out", 0, 0, 1 << 62) for m in some]
        return [(m.key(), orjson.loads(m.value() or b"null"), m.timestamp()[1]) for m in found]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, KEYED)
    yield made
    made.tasks.close()


def test_the_first_row_is_kept_and_others_are_joined(world: World) -> None:
    world.run(reducing(), entries(("a", 5, 7, 0, 0), ("b", 1, 9, 0, 1), ("a", 3, 9, 0, 2)))
    assert world.kept() == {b"a": ("a", 5, 9), b"b": ("b", 1, 9)}
    world.run(reducing(), entries(("a", 8, 2, 0, 3)))
    assert world.kept() == {b"a": ("a", 8, 9), b"b": ("b", 1, 9)}
    assert world.outputs() == [
        (b"a", {"k": "a", "x": 5}, 9),
        (b"b", {"k": "b", "x": 1}, 9),
        (b"a", {"k": "a", "x": 8}, 9),
    ]
    assert world.run(reducing(), None) == []


def test_a_row_on_which_it_raises_is_a_letter_and_the_others_count(world: World) -> None:
    rows = [("a", 5, 1, 0, 0), ("a", -1, 2, 0, 1), ("a", 99, 3, 0, 2), ("a", 7, 4, 0, 3)]
    letters = world.run(reducing(), entries(*rows))
    assert world.kept() == {b"a": ("a", 7, 4)}
    assert [(one["offset"], one["reason"]) for one in letters] == [(1, "raised:s"), (2, "raised:s")]
    assert letters[0]["exception"] == "ValueError: below zero"
    assert "no whole" in letters[1]["exception"] or "text" in letters[1]["exception"]
    with pytest.raises(ProcessorFailed, match="store 's' raised in its function on key 'a'"):
        world.run(reducing(on_error="stop"), entries(*rows))
    assert world.kept() == {b"a": ("a", 7, 4)}


def test_a_number_too_large_for_a_float_is_a_letter_and_the_others_count(world: World) -> None:
    schema = StructType([StructField("f", FloatType())])
    code = cloudpickle.dumps((lambda: (0.0,), lambda _, row, old: (old.f + row.x * 1e38,)))
    verb = reducing(results=schema.json(), code=code)
    letters = world.run(verb, entries(("a", 1, 1, 0, 0), ("a", 10, 2, 0, 1), ("b", 2, 3, 0, 2)))
    assert {key: round(f / 1e38, 5) for key, (f, _) in world.kept(schema).items()} == {
        b"a": 1.0,
        b"b": 2.0,
    }
    (letter,) = letters
    assert (letter["offset"], letter["reason"]) == (1, "raised:s")
    assert letter["exception"].endswith(" is too large for a FLOAT")


def test_a_record_is_one_letter_for_a_key(world: World) -> None:
    rows = [("a", 5, 1, 0, 0), ("a", -1, 2, 0, 1), ("a", -1, 2, 0, 1)]
    letters = world.run(reducing(explodes=1), entries(*rows, explodes=1))
    assert [one["offset"] for one in letters] == [1]


def test_nothing_removes_the_key(world: World) -> None:
    table = entries(("a", 5, 9, 0, 0), ("a", 0, 9, 0, 1))
    world.run(reducing(), table)
    assert world.kept() == {}
    assert world.outputs() == [(b"a", None, 9)]
    world.run(reducing(), entries(("a", 5, 1, 0, 2)))
    assert world.kept() == {b"a": ("a", 5, 1)}, "it begins anew, with its own time"


def test_what_it_did_to_a_value_in_place_is_nobodys(world: World) -> None:
    def add(key: str, row: Any, old: Any) -> Any:
        old.words.append(f"{key}{row.x}")
        if row.x < 0:
            raise ValueError("after it has appended")
        return old.n + row.x, old.words

    store = replace(KEYED, value_serde=RowCodec(TOTAL).serde)
    code = cloudpickle.dumps((lambda: (0, []), add))
    verb = replace(
        reducing(), code=code, results=TOTAL.json(), fold=Fold(store, "key"), outputs=("out",)
    )
    letters = world.run(verb, entries(("a", 5, 1, 0, 0), ("a", -1, 2, 0, 1), ("a", 7, 4, 0, 3)))
    assert [one["exception"] for one in letters] == ["ValueError: after it has appended"]
    assert world.kept(TOTAL) == {b"a": (12, ["a5", "a7"], 4)}
    assert world.outputs() == [(b"a", {"key": "a", "n": 12, "words": ["a5", "a7"]}, 4)]


def test_a_window_is_a_key_of_its_own(tmp_path: Path) -> None:
    world = World(tmp_path, HOURLY)
    verb = reducing(fold=Fold(HOURLY, ""))
    rows = [("a", 5, 7, 0, 0), ("a", 3, 12, 0, 1), ("a", 4, 19, 0, 2), ("aa", 1, 7, 0, 3)]
    world.run(verb, entries(*rows, window_ms=10))
    assert world.kept() == {
        window_key(b"a", 0): ("a", 5, 7),
        window_key(b"a", 10): ("a", 4, 19),
        window_key(b"aa", 0): ("aa", 1, 7),
    }
    key, value, time = world.outputs()[1]
    assert (key, time) == (window_key(b"a", 10)[:-4], 19)
    assert value == {"window_start": 10, "window_end": 20, "k": "a", "x": 4}
    world.tasks.close()


def test_what_its_topic_does_not_take_is_a_letter(world: World) -> None:
    def grow(_: str, row: Any, old: str) -> str:
        return f"{old}{'x' * row.x}"

    one = StructType([StructField("value", StringType())])
    code = cloudpickle.dumps((str, grow))
    verb = replace(reducing(), code=code, results=one.json(), fold=Fold(KEYED, "k", single=True))
    rows = [("a", 5, 1, 0, 0), ("a", 300, 2, 0, 1), ("a", 2, 3, 0, 2)]
    letters = world.run(verb, entries(*rows), limit=200)
    assert [(one["offset"], one["reason"]) for one in letters] == [(1, "too-large:s")]
    assert world.kept(one) == {b"a": ("x" * 7, 3)}
    assert world.outputs() == [(b"a", {"k": "a", "value": "x" * 7}, 3)]


def test_code_that_cannot_be_made_anew_is_tried_again(world: World) -> None:
    """One machine may lack what others have."""
    with pytest.raises(ProcessorUnready, match="'s' raised in its functions, made anew on task 0"):
        world.run(reducing(code=b"no pickle"), entries(("a", 5, 1, 0, 0)))
    missing = pickle.dumps((None, larger), 0).replace(larger.__module__.encode(), b"not_installed")
    with pytest.raises(ProcessorUnready, match="Is what it imports installed there"):
        world.run(reducing(code=missing), entries(("a", 5, 1, 0, 0)))
    assert world.kept() == {}


class Panic(BaseException):
    """As libraries in Rust raise it."""


def raising(error: BaseException) -> Callable[..., Any]:
    def raises(_: Any, new: Any) -> Any:
        if new.x == 1:
            raise error
        return new

    return raises


@pytest.mark.parametrize("error", [SystemExit(3), Panic("odd row")])
def test_whatever_it_raises_is_its_rows(world: World, error: BaseException) -> None:
    table = entries(("a", 5, 1, 0, 0), ("a", 1, 2, 0, 1), ("a", 7, 3, 0, 2))
    (letter,) = world.run(reducing(raising(error)), table)
    assert (letter["offset"], letter["reason"]) == (1, "raised:s")
    assert letter["exception"].startswith(type(error).__name__)
    assert world.kept() == {b"a": ("a", 7, 3)}


@pytest.mark.parametrize("error", [MemoryError(), ModuleNotFoundError("no geo")])
def test_what_a_machine_lacks_is_tried_again(world: World, error: Exception) -> None:
    table = entries(("a", 5, 1, 0, 0), ("a", 1, 2, 0, 1))
    with pytest.raises(ProcessorUnready, match="store 's' raised in its function on task 0"):
        world.run(reducing(raising(error)), table)
    assert world.kept() == {}


def test_what_is_too_large_says_how_large(world: World) -> None:
    with pytest.raises(ProcessorFailed, match=r"makes a record of \d+ bytes.* takes 3 on key"):
        world.run(reducing(on_error="stop"), entries(("a", 5, 1, 0, 0)), limit=3)


@pytest.mark.parametrize(
    ("kind", "item"),
    [
        (StructType([StructField("identifier_of_the_customer", LongType()),
                     StructField("quantity_that_was_ordered", LongType())]), (1, 2)),
        (TimestampType(), dt.datetime(1970, 1, 1, tzinfo=dt.UTC)),
    ],
    ids=["names", "times"],
)  # fmt: skip
def test_nested_values_are_larger_in_outputs(world: World, kind: DataType, item: Any) -> None:
    """Kept without names, and times as numbers: the host would refuse the commit each time."""
    schema = StructType([StructField("items", ArrayType(kind))])
    code = cloudpickle.dumps((lambda: ([],), lambda _, row, __: ([item] * row.x,)))
    store = replace(KEYED, value_serde=RowCodec(schema).serde)
    verb = replace(reducing(), code=code, results=schema.json(), fold=Fold(store, "k"))
    sent = len(orjson.dumps({"k": "a", "items": [shown(kind)(item)] * 1000}))
    packed = len(Folded(schema.json(), single=False).pack(([item] * 1000,)))
    limit = packed * 8 + 600
    assert limit < sent, "what is checked by a factor of 8 alone"
    (letter,) = world.run(verb, entries(("a", 1000, 1, 0, 0)), limit=limit)
    assert letter["reason"] == "too-large:s"
    assert world.outputs() == []
    assert world.run(verb, entries(("a", 10, 1, 0, 1)), limit=limit) == []


def test_a_key_of_many_rows_is_looked_at_within(world: World) -> None:
    called = list[int]()

    def counting(_: Any, new: Any) -> Any:
        called.append(new.x)
        return new

    rows, verb = entries(*(("a", x, 1, 0, x) for x in range(1000))), reducing()
    batch = BatchPlan(EPOCH, 1, Positions(), SOURCES, 3, 5, 0, {}, limits={"s": 1000})
    with world.tasks.exchange("app", 0, EPOCH, 1) as exchange:
        given = Given(rows, 0, verb, batch.sources())
        assert verb.fold is not None
        run = _Folding(verb, verb.fold, batch, exchange, Pace(0, 0.0))
        run._functions._join = counting
        with pytest.raises(ProcessorUnready, match="'s' takes too long on task 0: 100 calls"):
            run.all(given)
    assert len(called) < 100


class Colour(str, Enum):  # noqa: UP042 - StrEnum has a text of its own
    RED = "red"


def test_a_text_of_ones_own_is_kept_as_what_it_holds() -> None:
    schema = StructType(
        [StructField("a", StringType()), StructField("m", MapType(StringType(), StringType()))]
    )
    folded = Folded(schema.json(), single=False)
    made = folded.unpack(folded.pack((Colour.RED, {Colour.RED: Colour.RED})))
    assert made == Row(a="red", m={"red": "red"})
    assert {type(made.a), *map(type, made.m)} == {str}


def test_a_value_is_known_as_it_was_made() -> None:
    inner = StructType([StructField("a", LongType())])
    schema = StructType(
        [StructField("s", inner), StructField("m", MapType(StringType(), ArrayType(inner)))]
    )
    folded = Folded(schema.json(), single=False)
    made = Row(s=Row(a=1), m={"x": [Row(a=2), None]})
    assert folded.unpack(folded.pack(made)) == made
    assert folded.unpack(folded.pack(made)).m["x"][0].a == 2
    given = {"s": {"a": 1}, "m": [("x", [{"a": 2}, None])]}
    converts = [from_arrow(f.dataType) for f in schema.fields]
    assert all(converts)
    pairs = zip(converts, given.values(), strict=True)
    values = [convert(one) for convert, one in pairs if convert]
    assert Row(*schema.names)(*values) == made
    assert from_arrow(ArrayType(LongType())) is None
