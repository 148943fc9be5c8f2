"""What a processor, its state or its topic does not take: letters, and what is tried again."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest
from pyspark import cloudpickle
from pyspark.sql import Row

from state_lib.errors import (
    ConfigurationError,
    ProcessorFailed,
    ProcessorUnready,
)
from state_lib.executor.process.results import Results
from tests.support.entries import entries
from tests.support.processors import Doing
from tests.support.ran import SOURCES_ORDER, World, processor, total


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with closing(World(tmp_path)) as made:
        yield made


def test_a_key_that_fails_leaves_nothing_but_letters(world: World) -> None:
    table = entries(("a", 1, 7, 2, 4), ("a", -1, 8, 1, 5), ("b", 9, 7, 0, 6), ("a", 1, 7, 2, 4))
    told = world.run(table, 3)
    assert world.state() == {b"b": 9}
    assert told.due == {"eventtime": 9}
    letters = [orjson.loads(raw) for raw in told.letters]
    assert [(one["topic"], one["partition"], one["offset"]) for one in letters] == [
        (*SOURCES_ORDER[2], 4),
        (*SOURCES_ORDER[1], 5),
    ]
    assert {(one["reason"], one["exception"]) for one in letters} == {
        ("raised:p", "ValueError: below zero")
    }
    with pytest.raises(ProcessorFailed, match="'p' raised in handleInputRows on key 'a'"):
        world.run(table, 3, on_error="stop")
    assert world.state() == {b"b": 9}


def test_an_exception_that_cannot_be_told_is_told_by_its_name(world: World) -> None:
    def raises(*_: Any) -> Any:
        class UntoldError(Exception):
            def __str__(self) -> str:
                raise AttributeError("it was never set")

        raise UntoldError

    asked = {"n": lambda handle, name: handle.getValueState(name, "x BIGINT")}
    code = cloudpickle.dumps(Doing(asked, raises))
    (letter,) = map(orjson.loads, world.run(entries(("a", 1, 7, 0, 0)), 3, code=code).letters)
    assert letter["exception"] == "UntoldError"
    with pytest.raises(ProcessorFailed, match="UntoldError"):
        world.run(entries(("a", 1, 7, 0, 0)), 3, code=code, on_error="stop")


def test_a_timer_that_fails_is_gone(world: World) -> None:
    """Where it is to stop the stream instead, it is there for the code that comes after."""
    world.run(entries(("a", 13, 7, 0, 0)), 3)
    there = dict(world.tasks[0].scan("p-timers")[1])
    with pytest.raises(ProcessorFailed, match="'p' raised in handleExpiredTimer on key 'a'"):
        world.run(None, 20, on_error="stop")
    assert dict(world.tasks[0].scan("p-timers")[1]) == there != {}
    told = world.run(None, 20)
    (letter,) = map(orjson.loads, told.letters)
    assert (letter["reason"], letter["topic"], letter["timestamp"]) == (
        "raised-timer:p", "p-timers", 13,
    )  # fmt: skip
    assert told.due == {}
    assert dict(world.tasks[0].scan("p-timers")[1]) == {}


def test_what_its_topic_does_not_take_is_a_letter(world: World) -> None:
    told = world.run(entries(("a", 1, 7, 0, 0)), 3, limit=17)
    assert [orjson.loads(raw)["reason"] for raw in told.letters] == ["too-large:p"]
    assert world.state() == {}


def asking(how: Any) -> bytes:
    """A processor that does this in ``init``, as executors get it."""
    return bytes(cloudpickle.dumps(Doing({"n": how}, total)))


def test_what_fails_in_init_is_tried_again(world: World) -> None:
    """It is where connections are opened. What it asks for beside what is known stays wrong."""

    def away(*_: Any) -> Any:
        raise ConnectionRefusedError("the service is away")

    with pytest.raises(ProcessorUnready, match="raised in init on task 0") as failed:
        world.run(None, 3, code=asking(away))
    assert not isinstance(failed.value, ConfigurationError), "the driver begins anew"
    assert "the service is away" in failed.value.message
    for wrong in (
        lambda handle, _: handle.getValueState("other", "x BIGINT"),
        lambda handle, name: handle.getValueState(name, "x BIGINT").get(),
    ):
        with pytest.raises(ProcessorFailed, match="raised in init"):
            world.run(None, 3, code=asking(wrong))


def test_rows_that_are_none_of_the_schema_are_refused() -> None:
    results = Results(processor())
    assert results.records([Row(x=1, k="a"), ("b", None)], 7) == [
        (b'{"k":"a","x":1}', 7), (b'{"k":"b","x":null}', 7),
    ]  # fmt: skip
    assert results.records(None, 7) == []
    for wrong in (Row(k="a"), ("a",), ("a", "b"), 1, Row(k="a", x=1, y=2)):
        with pytest.raises(TypeError):
            results.records([wrong], 7)


@pytest.mark.parametrize("raised", [SystemExit, CancelledError])
def test_whatever_a_processor_raises_is_its_rows(world: World, raised: type[BaseException]) -> None:
    def raises(*_: Any) -> Any:
        raise raised

    asked = {"n": lambda handle, name: handle.getValueState(name, "x BIGINT")}
    code = cloudpickle.dumps(Doing(asked, raises))
    (letter,) = map(orjson.loads, world.run(entries(("a", 1, 7, 0, 0)), 3, code=code).letters)
    assert (letter["reason"], letter["exception"]) == ("raised:p", f"{raised.__name__}:")


@pytest.mark.parametrize("raised", [MemoryError, ImportError])
def test_what_a_machine_lacks_is_tried_again(world: World, raised: type[Exception]) -> None:
    def raises(*_: Any) -> Any:
        raise raised

    asked = {"n": lambda handle, name: handle.getValueState(name, "x BIGINT")}
    code = cloudpickle.dumps(Doing(asked, raises))
    with pytest.raises(ProcessorUnready, match="'p' raised in handleInputRows on task 0"):
        world.run(entries(("a", 1, 7, 0, 0)), 3, code=code)


def test_one_that_ends_in_init_is_tried_again(world: World) -> None:
    def ends(*_: Any) -> Any:
        raise SystemExit

    with pytest.raises(ProcessorUnready, match="raised in init on task 0"):
        world.run(None, 3, code=asking(ends))
