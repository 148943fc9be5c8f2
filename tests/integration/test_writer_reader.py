"""The transactional writer and the reader, over the holes that real logs have."""

from __future__ import annotations

import threading
import time
from ast import literal_eval
from collections.abc import Iterator

import pytest
from confluent_kafka import Message, TopicPartition
from confluent_kafka.admin import NewTopic

from state_lib.changelog import writer as writers
from state_lib.changelog.admin import _await
from state_lib.changelog.reader import read, read_last
from state_lib.changelog.topics import TopicPlan
from state_lib.changelog.writer import OutcomeUnknown, Records, TransactionalWriter
from state_lib.errors import HoldfastError, NotOwner, StateCorrupt, Unavailable
from state_lib.kafka import Kafka, ends, starts
from state_lib.stack.broker import LocalBroker
from tests.support.fold import committed

MARKS = "-marks"


class Log:
    """One topic with one partition, its markers' topic, and writers to it."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self.kafka, self.topic = kafka, topic
        self.writers: list[TransactionalWriter] = []

    def writer(self, timeout_s: float = 30.0) -> TransactionalWriter:
        made = TransactionalWriter(self.kafka, self.topic, 0, timeout_s)
        made.open()
        self.writers.append(made)
        return made

    def put(self, writer: TransactionalWriter, *keys: str, time_ms: int = 1000) -> bytes:
        raw: list[bytes | None] = [k.encode() for k in keys]
        return self.write(writer, Records(self.topic, raw, raw, [time_ms] * len(raw)))

    def write(self, writer: TransactionalWriter, records: Records) -> bytes:
        value = writer.write([records], (self.topic + MARKS, b"t"), lambda cut: repr(cut).encode())
        end: int = literal_eval(value.decode())[self.topic][0]
        deadline = time.monotonic() + 10  # acknowledged before the brokers have marked it so
        while self.bounds[1] <= end:
            assert time.monotonic() < deadline
        return value

    def abort(self, writer: TransactionalWriter, keys: int = 1) -> None:
        """A transaction whose records reach the log and are aborted."""
        producer = writer._producer
        producer.begin_transaction()
        for i in range(keys):
            producer.produce(self.topic, b"aborted", b"%d" % i, 0)
        producer.flush()
        producer.abort_transaction()

    @property
    def bounds(self) -> tuple[int, int]:
        admin, at = self.kafka.admin(), (self.topic, 0)
        return starts(admin, [at])[at], ends(admin, [at])[at]

    def read(self, start: int | None = None) -> list[Message]:
        first, end = self.bounds
        batches = read(self.kafka, self.topic, 0, first if start is None else start, end)
        return [message for batch in batches for message in batch]

    def read_keys(self, start: int | None = None) -> list[str]:
        return [(m.key() or b"").decode() for m in self.read(start)]

    def wait_for(self, first: int, last: int = 1 << 62) -> None:
        """Until the log starts at ``first`` or holds at most ``last`` records."""
        deadline = time.monotonic() + 60
        while self.bounds[0] < first or len(self.read()) > last:
            assert time.monotonic() < deadline, (self.bounds, self.read_keys())
            time.sleep(0.2)


@pytest.fixture
def log(kafka: Kafka, name: str, request: pytest.FixtureRequest) -> Iterator[Log]:
    config = getattr(request, "param", {"cleanup.policy": "compact"})
    config = {"message.timestamp.after.max.ms": str(2**63 - 1), "retention.ms": "-1"} | config
    new = [NewTopic(name, 1, 1, config=config), NewTopic(name + MARKS, 1, 1)]
    for future in kafka.admin().create_topics(new).values():
        future.result()
    _await(kafka.admin(), [TopicPlan(t.topic, 1) for t in new])
    made = Log(kafka, name)
    yield made
    for writer in made.writers:
        writer.close()


COMPACTS = {
    "cleanup.policy": "compact", "segment.ms": "200", "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "0", "min.compaction.lag.ms": "0",
}  # fmt: skip


def test_an_empty_log_is_read_at_once(log: Log) -> None:
    assert log.read_keys() == []
    assert read_last(log.kafka, log.topic, 0) is None


def test_a_read_ends_on_the_last_stable_offset(log: Log) -> None:
    writer = log.writer()
    cut = log.put(writer, "a", "b", "c")
    assert cut == repr({log.topic: [3, 3]}).encode()
    started = time.monotonic()
    assert log.read_keys() == ["a", "b", "c"]
    assert time.monotonic() - started < 3, "nobody waits for the record at end - 1"
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
    assert time.monotonic() - started < 3


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


@pytest.mark.parametrize("pause_s", [1.0, 5.0])  # the second is longer than a broker's session
def test_a_broker_that_stalls_is_never_lied_about(
    log: Log, broker: LocalBroker, pause_s: float
) -> None:
    writer = log.writer(timeout_s=2.0)
    log.put(writer, "before")
    outcome: list[object] = []

    def commit() -> None:
        try:
            outcome.append(log.put(writer, "stalled"))
        except HoldfastError as error:
            outcome.append(error)

    thread = threading.Thread(target=commit)
    with broker.paused():
        thread.start()
        thread.join(pause_s)
    thread.join(30)
    assert len(outcome) == 1
    log.put(log.writer(), "after")  # what was in doubt is decided now
    keys = log.read_keys()
    stands = keys == ["before", "stalled", "after"]
    assert stands or keys == ["before", "after"]
    if isinstance(outcome[0], bytes):
        assert stands
    else:
        assert isinstance(outcome[0], OutcomeUnknown | Unavailable)
        assert not (stands and isinstance(outcome[0], Unavailable)), "aborted must mean aborted"


def test_a_transaction_that_timed_out_fences_its_writer(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator aborts what stays open for too long, under a new producer epoch."""
    made = log.kafka.producer
    monkeypatch.setattr(
        Kafka, "producer", lambda _, **extra: made(**extra | {"transaction.timeout.ms": 1500})
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
