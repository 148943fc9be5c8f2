"""The transactional writer and the reader, over the holes that real logs have."""

from __future__ import annotations

import os
import time

import pytest
from confluent_kafka import TopicPartition

from state_lib.changelog import writer as writers
from state_lib.changelog.admin import set_topic_config
from state_lib.changelog.lasts import last_records
from state_lib.changelog.limits import USUAL, size_limits
from state_lib.changelog.reader import read, read_last
from state_lib.changelog.writer import OutcomeUnknown, Records, WriterOutdated
from state_lib.errors import NotOwner, StateCorrupt, TooLarge, Unavailable
from state_lib.kafka import Kafka
from tests.support.fold import committed
from tests.support.topic import MARKS, Log
from tests.support.waiting import SLOWNESS

COMPACTS = {
    "cleanup.policy": "compact", "segment.ms": "200", "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "0", "min.compaction.lag.ms": "0",
}  # fmt: skip


def test_the_last_records_of_many_are_those_of_each(log: Log) -> None:
    """Also behind more aborted offsets than are looked at first."""
    assert last_records(log.kafka, log.topic, [0]) == [None]
    writer = log.writer()
    log.put(writer, "a", "b")
    for keys in (0, 40):
        if keys:
            log.abort(writer, keys)
        one, (other,) = read_last(log.kafka, log.topic, 0), last_records(log.kafka, log.topic, [0])
        assert one is not None
        assert other is not None
        assert (other.key(), other.offset()) == (one.key(), one.offset()) == (b"b", 1)


def test_an_empty_log_is_read_at_once(log: Log) -> None:
    assert log.read_keys() == []
    assert read_last(log.kafka, log.topic, 0) is None


def test_a_read_ends_on_the_last_stable_offset(log: Log) -> None:
    writer = log.writer()
    cut = log.put(writer, "a", "b", "c")
    assert cut == repr({log.topic: [3, 3]}).encode()
    started = time.monotonic()
    assert log.read_keys() == ["a", "b", "c"]
    assert time.monotonic() - started < 3 * SLOWNESS, "nobody waits for the record at end - 1"
    assert log.bounds == (0, 4), "the control record is the fourth"
    assert log.read_keys(3) == []
    assert log.read_keys(4) == []


def test_a_read_is_half_open_and_batched(log: Log) -> None:
    log.put(log.writer(), *"abcdef")
    batches = list(read(log.kafka, log.topic, 0, 1, 5, batch=3))
    assert [[m.offset() for m in batch] for batch in batches] == [[1, 2, 3], [4]]


def test_aborted_records_never_show(log: Log) -> None:
    writer = log.writer()
    log.abort(writer, 3)
    log.put(writer, "a")
    log.abort(writer, 2)
    log.put(writer, "b")
    log.abort(writer, 50)
    assert log.read_keys() == ["a", "b"]
    assert [m.key() for m in committed(log.kafka.properties["bootstrap.servers"], log.topic)] == [
        b"a", b"b",
    ]  # fmt: skip


def test_the_last_record_is_found_below_many_aborted(log: Log) -> None:
    writer = log.writer()
    log.put(writer, "a", "b")
    for _ in range(3):
        log.abort(writer, 300)
    last = read_last(log.kafka, log.topic, 0)
    assert last is not None
    assert last.key() == b"b"


def test_only_aborted_records_are_none(log: Log) -> None:
    log.abort(log.writer(), 200)
    assert read_last(log.kafka, log.topic, 0) is None


def test_an_open_transaction_hides_what_follows(log: Log) -> None:
    writer = log.writer()
    log.put(writer, "a")
    writer._producer.begin_transaction()
    writer._producer.produce(log.topic, b"v", b"open", 0)
    writer._producer.flush()
    assert log.read_keys() == ["a"]
    assert log.bounds[1] == 2


@pytest.mark.parametrize("log", [COMPACTS], indirect=True)
def test_compacted_gaps(log: Log) -> None:
    writer = log.writer()
    for _ in range(4):
        log.put(writer, "a", "b")
    time.sleep(0.3)
    log.put(writer, "z")
    log.wait_for(0, last=3)
    messages = log.read()
    assert sorted(m.key() or b"" for m in messages) == [b"a", b"b", b"z"]
    assert [m.offset() for m in messages] == [9, 10, 12]
    assert log.read_keys(1) == log.read_keys(10 - 1), "a start inside a gap is a start"


@pytest.mark.parametrize("log", [COMPACTS], indirect=True)
def test_everything_compacted_away(log: Log) -> None:
    writer = log.writer()
    log.put(writer, *"abc")
    gone = Records(log.topic, [b"a", b"b", b"c"], [None] * 3, [1000] * 3)
    log.write(writer, gone)
    time.sleep(0.3)
    log.put(writer, "z")
    time.sleep(0.3)
    log.write(writer, Records(log.topic, [b"z"], [None], [1000]))
    log.wait_for(0, last=2)
    started = time.monotonic()
    assert [k for k in log.read_keys() if k != "z"] == []
    assert time.monotonic() - started < 3 * SLOWNESS


@pytest.mark.parametrize("log", [{"cleanup.policy": "delete"}], indirect=True)
def test_a_log_that_starts_later(log: Log) -> None:
    writer = log.writer()
    for key in "abcd":
        log.put(writer, key)
    for future in log.kafka.admin().delete_records([TopicPartition(log.topic, 0, 4)]).values():
        future.result()
    assert log.bounds[0] == 4
    assert log.read_keys() == ["c", "d"]
    with pytest.raises(StateCorrupt) as lost:
        log.read_keys(2)
    assert lost.value.details["start"] == 2


@pytest.mark.parametrize("log", [{"cleanup.policy": "delete"}], indirect=True)
def test_a_log_that_lost_everything(log: Log) -> None:
    log.put(log.writer(), "a")
    for future in log.kafka.admin().delete_records([TopicPartition(log.topic, 0, 2)]).values():
        future.result()
    assert log.bounds == (2, 2)
    assert log.read_keys() == []
    assert read_last(log.kafka, log.topic, 0) is None


def test_a_start_beyond_the_end_is_corrupt(log: Log) -> None:
    log.put(log.writer(), "a")
    with pytest.raises(StateCorrupt):
        list(read(log.kafka, log.topic, 0, 100, 200))


def test_an_end_that_the_leader_does_not_know_is_not_taken_for_reached(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new leader may tell a lower end for a moment: stopping there would lose records."""
    log.put(log.writer(), "a")
    monkeypatch.setattr("state_lib.changelog.reader.STALL_S", 1.0)
    with pytest.raises(Unavailable, match="no record"):
        list(read(log.kafka, log.topic, 0, 0, 5))


def test_a_newer_writer_fences(log: Log) -> None:
    old = log.writer()
    log.put(old, "a")
    new = log.writer()
    with pytest.raises(NotOwner):
        log.put(old, "lost")
    log.put(new, "b")
    with pytest.raises(NotOwner):
        log.put(old, "lost")
    assert log.read_keys() == ["a", "b"]


def test_opening_ends_what_was_left_open(log: Log) -> None:
    old = log.writer()
    old._producer.begin_transaction()
    old._producer.produce(log.topic, b"v", b"open", 0)
    old._producer.flush()
    log.put(log.writer(), "a")
    assert log.read_keys() == ["a"]


def test_what_no_transaction_takes_leaves_nothing(log: Log) -> None:
    writer = log.writer()
    odd = Records(log.topic, [b"a", b"b"], [b"1", b"2"], [1, "soon"])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        writer.write([odd], (log.topic + MARKS, b"t"), lambda _: b"")
    with pytest.raises(ZeroDivisionError):
        writer.write([], (log.topic + MARKS, b"t"), lambda _: b"%d" % (1 // 0))
    log.put(writer, "c")
    assert log.read_keys() == ["c"]


@pytest.mark.parametrize("time_ms", [1, 1000, 86_400_000, 1_700_000_000_000, 4_102_444_800_000])
def test_event_times_survive(log: Log, time_ms: int) -> None:
    log.put(log.writer(), "a", "b", time_ms=time_ms)
    assert [m.timestamp()[1] for m in log.read()] == [time_ms, time_ms]


def test_time_zero_is_written_as_one(log: Log) -> None:
    """librdkafka reads 0 as "now": a record of 1970 would move to today."""
    log.put(log.writer(), "a", "b", time_ms=0)
    assert [m.timestamp()[1] for m in log.read()] == [1, 1]
    assert list(writers.record_times([5, 0])) == [5, 1]


def test_a_transaction_that_timed_out_fences_its_writer(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator aborts what stays open for too long, under a new producer epoch."""
    made = log.kafka.producer
    monkeypatch.setattr(
        Kafka,
        "producer",
        lambda _, topic, **extra: made(topic, **extra | {"transaction.timeout.ms": 1500}),
    )
    writer = log.writer()
    log.put(writer, "a")
    writer._producer.begin_transaction()
    writer._producer.produce(log.topic, b"v", b"late", 0)
    writer._producer.flush()
    time.sleep(3.0)
    with pytest.raises((NotOwner, OutcomeUnknown)):
        writer._commit([log.topic])
    log.put(log.writer(), "b")
    assert log.read_keys() == ["a", "b"]


def large(log: Log, size: int, count: int = 1) -> Records:
    """Records that do not get smaller by compression."""
    values = [os.urandom(size) for _ in range(count)]
    return Records(log.topic, [b"%d" % i for i in range(count)], values)


@pytest.mark.parametrize("log", [{"max.message.bytes": "3000000"}], indirect=True)
def test_records_may_be_as_large_as_the_topic_takes(log: Log) -> None:
    """More than librdkafka's own default."""
    log.write(log.writer(), large(log, 2_900_000, 3))
    assert [len(m.value() or b"") for m in log.read()] == [2_900_000] * 3


@pytest.mark.parametrize("log", [{"max.message.bytes": "20000"}], indirect=True)
def test_a_batch_is_no_larger_than_the_topic_takes(log: Log) -> None:
    """Many records that are small enough, and together are not."""
    log.write(log.writer(), large(log, 5_000, 100))
    assert len(log.read()) == 100


@pytest.mark.parametrize("log", [{"max.message.bytes": "20000"}], indirect=True)
def test_a_record_that_is_too_large_is_named(log: Log) -> None:
    writer = log.writer()
    with pytest.raises(TooLarge) as refused:
        log.write(writer, large(log, 30_000))
    assert refused.value.details == {
        "topic": log.topic,
        "size": 30_001,
        "limit": size_limits(log.kafka.admin(), [log.topic])[log.topic],
    }
    log.put(log.writer(), "a")
    assert log.read_keys() == ["a"], "nothing of it stands"


def test_a_marker_that_is_too_large_is_named(log: Log) -> None:
    """Also where it is all that is written, as when a task is claimed."""
    marks = log.topic + MARKS
    for records in ([], [Records(log.topic, [b"k"], [b"v"])]):
        writer = log.writer()
        with pytest.raises(TooLarge) as refused:
            writer.write(records, (marks, b"key"), lambda _cut: os.urandom(2_000_000))
        assert refused.value.details == {"topic": marks, "size": 2_000_003, "limit": USUAL}
    assert log.read() == []


@pytest.mark.parametrize("log", [{"max.message.bytes": "3000000"}], indirect=True)
def test_the_broker_may_take_less_by_now(log: Log) -> None:
    writer = log.writer()
    set_topic_config(log.kafka.admin(), log.topic, "max.message.bytes", "20000")
    with pytest.raises(TooLarge, match="takes") as refused:
        log.write(writer, large(log, 30_000, 3))
    assert (refused.value.details["topic"], refused.value.details["size"]) == (log.topic, 30_001)
    log.put(log.writer(), "a")
    assert log.read_keys() == ["a"]


@pytest.mark.parametrize("log", [{"max.message.bytes": "20000"}], indirect=True)
def test_the_broker_may_take_more_by_now(log: Log) -> None:
    """Then the next writer does, and nobody has to start anything again."""
    writer = log.writer()
    set_topic_config(log.kafka.admin(), log.topic, "max.message.bytes", "2000000")
    with pytest.raises(WriterOutdated, match="opened again") as refused:
        log.write(writer, large(log, 1_500_000))
    assert refused.value.details["size"] <= refused.value.details["limit"]
    log.write(log.writer(), large(log, 1_500_000))
    assert len(log.read()) == 1
