"""The transactional writer of one task: changelogs, outputs and the marker, all or nothing."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from state_lib.changelog.limits import FRAMING, USUAL, producer_sizes, size_limits
from state_lib.errors import HoldfastError, NotOwner, TooLarge, Unavailable
from state_lib.kafka import Kafka, not_writable, unavailable
from state_lib.kafka_door import is_forbidden

log = structlog.get_logger(__name__)
Headers = list[tuple[str, bytes]]
MakeMarker = Callable[[dict[str, list[int]]], bytes]
Delivered = Callable[[KafkaError | None, Message], None]
EARLIEST_MS = 1
"""librdkafka writes time 0 as "now" [tried]: time 0 is written as 1."""


def record_times(timestamps: Sequence[int]) -> Sequence[int]:
    """Times (ms) as Kafka will have them; stores must keep the same."""
    return [t or EARLIEST_MS for t in timestamps] if 0 in timestamps else timestamps


class OutcomeUnknown(HoldfastError):
    """The transaction may or may not have been committed: close the task and open it again."""

    code = "outcome-unknown"


class WriterOutdated(Unavailable):
    """Nothing was written: a topic takes larger records since this writer was made; open another.

    Details: topic, size, limit (bytes).
    """

    code = "writer-outdated"


@dataclass
class Records:
    """Records for one topic, as parallel columns. ``timestamps`` in ms; None means now."""

    topic: str
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    timestamps: Sequence[int] | None = None
    headers: Sequence[Headers] | None = None


@dataclass
class _Cut:
    ends: dict[str, int] = field(default_factory=dict)
    error: KafkaError | None = None

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.error = error
        elif (offset := message.offset()) is not None:
            self.ends[str(message.topic())] = offset + 1


class TransactionalWriter:
    """One producer with ``transactional.id = <app>-<partition>``.

    Every record goes to one partition number, the task's.

    Args:
        kafka: connection.
        transactional_id: fences every earlier writer of the same id when opened.
        partition: the task's partition.
        timeout_s: for opening, flushing and committing one transaction.
        topic: one that it will write to, so that it opens faster.
        limits: of all topics that it will write to; see `size_limits`.
    """

    def __init__(
        self,
        kafka: Kafka,
        transactional_id: str,
        partition: int,
        timeout_s: float = 30.0,
        topic: str | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        self._kafka = kafka
        self._limits = dict(limits or {})
        self._id = transactional_id
        self._partition = partition
        self._timeout_s = timeout_s
        self._producer: Producer = kafka.producer(
            topic,
            **{
                "transactional.id": transactional_id,
                "transaction.timeout.ms": 60_000,
                "linger.ms": 20,
                "compression.type": "lz4",
                "queue.buffering.max.messages": 500_000,
                "queue.buffering.max.kbytes": 128 << 10,
                **producer_sizes(self._limits),
            },
        )

    def limit(self, topic: str) -> int:
        """The greatest key plus value (bytes) that a topic took when this writer was made."""
        return self._limits.get(topic, USUAL)

    def open(self) -> None:
        """Fence earlier writers, and finish or abort transactions that they left open."""
        try:
            self._producer.init_transactions(self._timeout_s)
        except KafkaException as error:
            what = f"write with transactional id {self._id!r}"
            raise unavailable(what, error, self._kafka) from error

    def write(
        self, records: Sequence[Records], marker: tuple[str, bytes], make_marker: MakeMarker
    ) -> bytes:
        """Write everything in one transaction.

        Args:
            records: per topic; written in order.
            marker: topic and key of the marker record.
            make_marker: called with ``{topic: [end offset, count]}`` of what was written; its
                result is the value of the marker, the transaction's last record.

        Returns:
            The marker's value, once committed.

        Raises:
            Unavailable: the transaction was aborted; it may be retried.
            KafkaRefused: a topic must not be written; aborted; open a new writer.
            TooLarge: a record is larger than its topic takes; aborted; a new writer reads the
                limits again.
            WriterOutdated: aborted; a new writer would take the record.
            NotOwner: another writer of the same id has fenced this one.
            OutcomeUnknown: it is not known whether it was committed.
        """
        value, sent = b"", [*records]

        def finish(cut: _Cut) -> None:
            nonlocal value
            counts = {g.topic: [cut.ends[g.topic], len(g.keys)] for g in records if len(g.keys)}
            value = make_marker(counts)
            sent.append(Records(marker[0], [marker[1]], [value]))
            self._send(marker[0], marker[1], value, None, cut.delivered, None)
            self._flush(cut)

        self._transact(sent, [*(g.topic for g in records), marker[0]], finish)
        return value

    def write_part(self, records: Records) -> int:
        """Commit part of a changelog without a marker: it counts once a marker covers it.

        At least one record. Returns the offset after the last one; raises as `write`.
        """
        return self._transact([records], [records.topic], lambda _cut: None).ends[records.topic]

    def _transact(
        self, records: Sequence[Records], topics: list[str], finish: Callable[[_Cut], None]
    ) -> _Cut:
        cut = _Cut()
        try:
            self._producer.begin_transaction()
            for group in records:
                self._produce(group, cut)
            self._flush(cut)
            finish(cut)
        except KafkaException as error:
            self._abort(error.args[0], topics, records)
        except BaseException:
            with contextlib.suppress(KafkaException):
                self._producer.purge()
                self._producer.abort_transaction(self._timeout_s)
            raise
        self._commit(topics, records)
        return cut

    def close(self) -> None:
        """Drop buffered records and end the producer's threads."""
        with contextlib.suppress(KafkaException, RuntimeError):
            self._producer.purge()
            self._producer.close(0.5)  # type: ignore[call-arg]

    def _produce(self, group: Records, cut: _Cut) -> None:
        produce, topic, partition = self._producer.produce, group.topic, self._partition
        last = len(group.keys) - 1
        if last < 0:
            return
        now = [0] * (last + 1)
        stamps = now if group.timestamps is None else record_times(group.timestamps)
        if group.headers is None:
            rows = zip(group.keys[:last], group.values[:last], stamps[:last], strict=True)
            for key, value, stamp in rows:
                try:
                    produce(topic, value, key, partition, None, None, stamp)
                except BufferError:
                    self._send(topic, key, value, stamp, None, None)
        else:
            for i in range(last):
                self._send(topic, group.keys[i], group.values[i], stamps[i], None, group.headers[i])
        headers = group.headers[last] if group.headers is not None else None
        self._send(
            topic, group.keys[last], group.values[last], stamps[last], cut.delivered, headers
        )

    def _send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        stamp: int | None,
        callback: Delivered | None,
        headers: Headers | None,
    ) -> None:
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                self._producer.produce(
                    topic,
                    value,
                    key,
                    self._partition,
                    on_delivery=callback,
                    timestamp=stamp or 0,
                    headers=[*headers] if headers else [],
                )
            except BufferError:
                if time.monotonic() > deadline:
                    raise KafkaException(
                        KafkaError(KafkaError._QUEUE_FULL, "queue stayed full")  # noqa: SLF001
                    ) from None
                self._producer.poll(0.05)
            else:
                return

    def _flush(self, cut: _Cut) -> None:
        try:
            left = self._producer.flush(self._timeout_s)
        except SystemError as error:
            # A fatal error is raised into a delivery callback that runs at that moment [tried].
            if isinstance(error.__cause__, KafkaException):
                raise error.__cause__ from error
            raise
        if left:
            raise KafkaException(
                KafkaError(KafkaError._TIMED_OUT, f"{left} records were not acknowledged")  # noqa: SLF001
            )
        if cut.error is not None:
            raise KafkaException(cut.error)

    def _commit(self, topics: list[str], records: Sequence[Records] = ()) -> None:
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                self._producer.commit_transaction(self._timeout_s)
            except KafkaException as failure:
                error = failure.args[0]
                if error.txn_requires_abort():
                    self._abort(error, topics, records)
                if not error.retriable() or time.monotonic() > deadline:
                    raise _fatal(error) from failure
            else:
                return

    def _abort(
        self, error: KafkaError, topics: Sequence[str], records: Sequence[Records] = ()
    ) -> None:
        if error.fatal():
            raise _fatal(error)
        cause = self._cause(error)
        try:
            self._producer.purge()
            self._producer.abort_transaction(self._timeout_s)
        except KafkaException as failure:
            if not is_forbidden(cause):
                raise _fatal(failure.args[0]) from failure
        if is_forbidden(cause):
            refused = not_writable(self._kafka.admin(), topics) or topics
            raise unavailable(f"write to topic {', '.join(refused)}", cause, self._kafka)
        if cause.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            raise self._too_large(records)
        raise Unavailable(
            f"the transaction was aborted: {cause.str()}; nothing of it stands",
            kafka_error=cause.name(),
        )

    def _too_large(self, records: Sequence[Records]) -> HoldfastError:
        """The error for the record that is furthest beyond its topic's present limit.

        If no record is beyond, only this writer's limits are too small: open another one.
        """
        now = size_limits(self._kafka.admin(), [g.topic for g in records])
        largest = {g.topic: _largest(g) for g in records}
        topic = max(largest, key=lambda t: largest[t] - now[t])
        size, limit = largest[topic], now[topic]
        if size <= limit:
            return WriterOutdated(
                f"nothing stands: topic {topic!r} takes a record of {size} bytes only by now; the "
                "task is opened again, to write that",
                topic=topic,
                size=size,
                limit=limit,
            )
        return TooLarge(
            f"a record of {size} bytes was refused: topic {topic!r} takes {limit}. Raise its "
            f"max.message.bytes beyond {size + FRAMING}, and what the brokers and consumers set, "
            "then start again",
            topic=topic,
            size=size,
            limit=limit,
        )

    def _cause(self, error: KafkaError) -> KafkaError:
        """Why a transaction failed whose records were purged: the error of an attempt to commit it.

        That cannot succeed: librdkafka refuses to commit when a record was not delivered.
        """
        if error.code() == KafkaError._PURGE_QUEUE:  # noqa: SLF001 - the public code
            try:
                self._producer.commit_transaction(self._timeout_s)
            except KafkaException as failure:
                cause: KafkaError = failure.args[0]
                return cause
        return error


def _largest(group: Records) -> int:
    pairs = zip(group.keys, group.values, strict=True)
    return max((len(key or b"") + len(value or b"") for key, value in pairs), default=0)


def _fatal(error: KafkaError) -> HoldfastError:
    if error.code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH):  # noqa: SLF001
        return NotOwner(
            f"another writer has taken over this task: {error.str()}", kafka_error=error.name()
        )
    return OutcomeUnknown(
        f"whether the transaction was committed is not known: {error.str()}; the task is closed "
        "and opened again, which tells",
        kafka_error=error.name(),
    )
