"""The log in memory keeps what tasks rely on of Kafka's."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from state_lib.changelog.log import CommitLog, Writer
from state_lib.changelog.memory import MemoryLog
from state_lib.changelog.writer import Records
from state_lib.errors import MissingTopic, NotOwner, StateCorrupt, TooLarge

MARKS = ("commits", b"app/0")


def log_of(limit: int = 100) -> MemoryLog:
    return MemoryLog({"a": 1, "b": 1, "commits": 1}, limit)


def opened(log: CommitLog) -> Writer:
    writer = log.writer("app-0", 0, "commits", ["a", "b"])
    writer.open()
    return writer


def keys(log: CommitLog, topic: str, start: int = 0) -> list[bytes | None]:
    end = log.ends([topic], 0)[topic]
    return [m.key() for some in log.read(topic, 0, start, end, 2) for m in some]


def test_a_cut_is_written_whole_and_its_end_takes_an_offset() -> None:
    log = log_of()
    seen = {}

    def mark(counts: dict[str, list[int]]) -> bytes:
        seen.update(counts)
        return b"marker"

    one = Records("a", [b"1", b"2"], [b"x", None], [0, 7])
    two = Records("b", [b"3"], [b"y"], headers=[[("h", b"v")]])
    assert opened(log).write([one, two], MARKS, mark) == b"marker"
    assert seen == {"a": [2, 2], "b": [1, 1]}
    assert log.ends(["a", "b", "commits"], 0) == {"a": 3, "b": 2, "commits": 2}
    first, second = next(log.read("a", 0, 0, 3))
    assert (first.offset(), first.key(), first.value()) == (0, b"1", b"x")
    assert (first.timestamp()[1], second.timestamp()[1]) == (1, 7), "0 is 1, as in Kafka"
    assert second.value() is None
    third = log.last("b", 0)
    assert third is not None
    assert (third.headers(), third.topic(), third.partition()) == ([("h", b"v")], "b", 0)
    newest = log.last("commits", 0)
    assert newest is not None
    assert (newest.key(), newest.value()) == (b"app/0", b"marker")
    assert opened(log).write_part(Records("a", [b"4"], [b"z"])) == 4
    assert keys(log, "a", 1) == [b"2", b"4"]
    assert log.last("a", 0).offset() == 3  # type: ignore[union-attr]


def test_a_cut_that_fails_leaves_nothing() -> None:
    log = log_of()
    writer = opened(log)

    def refuse(_counts: dict[str, list[int]]) -> bytes:
        raise RuntimeError("no marker")

    with pytest.raises(RuntimeError, match="no marker"):
        writer.write([Records("a", [b"1"], [b"x"])], MARKS, refuse)
    with pytest.raises(TooLarge) as refused:
        writer.write([Records("a", [b"1"], [b"x" * 100])], MARKS, lambda _: b"m")
    assert refused.value.details == {"topic": "a", "size": 101, "limit": 100}
    with pytest.raises(MissingTopic, match="'c' does not exist"):
        writer.write(
            [Records("a", [b"1"], [b""]), Records("c", [b""], [b""])], MARKS, lambda _: b""
        )
    assert log.ends(["a", "commits"], 0) == {"a": 0, "commits": 0}
    assert log.last("a", 0) is None


def test_whoever_opens_a_writer_fences_the_one_before() -> None:
    log = log_of()
    first = opened(log)
    first.write_part(Records("a", [b"1"], [b""]))
    second = log.writer("app-0", 0, "commits", [])
    first.write_part(Records("a", [b"2"], [b""]))  # it is not open yet
    second.open()
    for write in (first.write_part, log.writer("app-0", 0, "commits", []).write_part):
        with pytest.raises(NotOwner):
            write(Records("a", [b"3"], [b""]))
    second.write_part(Records("a", [b"4"], [b""]))
    assert keys(log, "a") == [b"1", b"2", b"4"]


def test_a_writer_that_is_fenced_within_a_cut_writes_nothing() -> None:
    log = log_of()
    first = opened(log)

    def other(_counts: dict[str, list[int]]) -> bytes:
        opened(log)
        return b"marker"

    with pytest.raises(NotOwner):
        first.write([Records("a", [b"1"], [b""])], MARKS, other)
    assert keys(log, "a") == keys(log, "commits") == []


def test_what_it_is_asked_besides() -> None:
    log = log_of()
    opened(log).write_part(Records("a", [b"12", None], [b"345", b"6"]))
    assert log.topics == {"a": 1, "b": 1, "commits": 1}
    at = log.ranges(["a"], 0)["a"]
    assert (at.topic_id, at.start, at.end) == ("memory:a", 0, 3)
    assert log.sample("a", 0, 0, 3).record_bytes == 3.0
    assert log.sample("b", 0, 0, 0).density == 1.0
    log.keep_forever("a")
    assert log.retention_ms("a") == -1
    assert list(log.read("a", 0, 2, 2)) == []
    with pytest.raises(StateCorrupt, match="beyond the log"):
        list(log.read("a", 0, 7, 9))
    with pytest.raises(MissingTopic, match="'c' does not exist"):
        log.require(["a", "c"])


@dataclass
class Expected:
    records: list[bytes | None] = field(default_factory=list)
    end: int = 0


class Log(RuleBasedStateMachine):
    """Any order of writers, cuts and failures against lists."""

    def __init__(self) -> None:
        super().__init__()
        self.log = log_of()
        self.writers = [opened(self.log)]
        self.expected = {topic: Expected() for topic in ("a", "b", "commits")}

    @rule()
    def open_another(self) -> None:
        self.writers.append(opened(self.log))

    @rule(
        a=st.lists(st.binary(max_size=3), max_size=4), b=st.lists(st.binary(max_size=3), max_size=2)
    )
    def write(self, a: list[bytes], b: list[bytes]) -> None:
        cut = [Records("a", a, a), Records("b", b, b)]
        self.writers[-1].write(cut, MARKS, lambda counts: repr(sorted(counts)).encode())
        for topic, written in (("a", a), ("b", b), ("commits", [MARKS[1]])):
            if written:
                self.expected[topic].records += written
                self.expected[topic].end += len(written) + 1

    @precondition(lambda self: len(self.writers) > 1)
    @rule(data=st.data())
    def write_fenced(self, data: st.DataObject) -> None:
        with pytest.raises(NotOwner):
            data.draw(st.sampled_from(self.writers[:-1])).write(
                [Records("a", [b"x"], [b"x"])], MARKS, lambda _: b""
            )

    @invariant()
    def holds_what_was_written(self) -> None:
        for topic, expected in self.expected.items():
            assert keys(self.log, topic) == expected.records
            assert self.log.ends([topic], 0) == {topic: expected.end}
            last = self.log.last(topic, 0)
            assert (None if last is None else last.key()) == (expected.records or [None])[-1]


TestLog = Log.TestCase
