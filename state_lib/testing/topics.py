"""Topics of a test: what is piped in, and what came out, as Python's own values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

import orjson
from confluent_kafka import Message

from state_lib.declaration import Source
from state_lib.errors import InvalidRequest
from state_lib.keys import split_output_key
from state_lib.serdes import serde_from
from state_lib.serdes.shown import all_digits
from state_lib.testing.avro import LocalSchemas
from state_lib.testing.keys import Keys

Time = int | datetime
Key = str | bytes | int | None


@dataclass(frozen=True)
class TestRecord:
    """A record of a topic: ``timestamp`` in ms; of an input, None means the driver's wall time."""

    __test__ = False  # pytest would collect it by its name

    value: Any
    key: Any = None
    timestamp: Time | None = None
    headers: Mapping[str, bytes] = field(default_factory=dict)
    partition: int | None = None


@dataclass(frozen=True)
class DeadLetter:
    """A record that could not be used: where it came from, why, and its own bytes.

    ``exception``: what a Python function raised, or a schema of Avro lacks, if that was why.
    """

    topic: str
    partition: int
    offset: int
    reason: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    exception: str | None = None


class TestInputTopic:
    """Made by `TopologyTestDriver.createInputTopic`; what is piped waits until somebody looks."""

    __test__ = False

    def __init__(
        self, source: Source, pipe: Callable[..., None], schemas: LocalSchemas | None = None
    ) -> None:
        self.name, self._source, self._pipe, self._schemas = source.topic, source, pipe, schemas

    def pipeInput(
        self,
        value: Any,
        key: Key = None,
        timestamp: Time | None = None,
        partition: int | None = None,
    ) -> None:
        """Add a record.

        Args:
            value: a dict for JSON, in it also dates, times and decimals, which become text; a dict
                for Avro (written by the schema that the topic is read by), a str for text, bytes
                for raw topics. Bytes go into every topic as they are, and None is a null.
            key: text is UTF-8, an int Kafka's Long; None is a null.
            timestamp: ms since 1970, or an aware datetime; None: the driver's wall time. Event time
                is what a column says, where the source was declared so.
            partition: None: by the key, as Kafka's producer; without one, round and round.

        Raises:
            InvalidRequest: a value of another type, or a partition that there is not.
        """
        self._pipe(self.name, key_bytes(key), self._bytes(value), to_ms(timestamp), partition)

    def pipeValueList(self, values: Iterable[Any]) -> None:
        """Add records without keys."""
        for value in values:
            self.pipeInput(value)

    def pipeRecordList(self, records: Iterable[TestRecord]) -> None:
        """Add records; their headers are ignored."""
        for r in records:
            self.pipeInput(r.value, r.key, r.timestamp, r.partition)

    def _bytes(self, value: Any) -> bytes | None:
        if value is None or isinstance(value, bytes):
            return value
        match self._source.format:
            case "json" if isinstance(value, Mapping):
                return _json(self.name, value)
            case "avro" if isinstance(value, Mapping) and self._schemas is not None:
                return self._schemas.encoded(self._source.reader, value, self.name)
            case "text" if isinstance(value, str):
                return value.encode()
        form = self._source.format
        wanted = {"json": "a dict", "avro": "a dict", "text": "a str"}.get(form, "bytes")
        raise InvalidRequest(
            f"topic {self.name!r} is read as {form}: its values are "
            f"{wanted} (or bytes, as they are), not {type(value).__name__} {value!r}",
            topic=self.name,
        )


class TestOutputTopic:
    """Made by `TopologyTestDriver.createOutputTopic`; each record is read once.

    Args:
        name: of the topic.
        queue: looks for what is not read yet; the batch that waits is run first.
        shape: of its records.
    """

    __test__ = False

    def __init__(self, name: str, queue: Callable[[], list[Message]], shape: OutputShape) -> None:
        self.name, self._queue, self._shape = name, queue, shape

    def isEmpty(self) -> bool:
        """Whether all was read."""
        return not self._queue()

    def getQueueSize(self) -> int:
        """How many records are left to read."""
        return len(self._queue())

    def readRecord(self) -> TestRecord:
        """The next record, with key, value, timestamp, headers and partition.

        Raises:
            InvalidRequest: all was read.
        """
        queue = self._queue()
        if not queue:
            raise InvalidRequest(f"topic {self.name!r} has no more records", topic=self.name)
        return self._shape.record(queue.pop(0))

    def readValue(self) -> Any:
        """The next record's value. Raises as `readRecord`."""
        return self.readRecord().value

    def readKeyValue(self) -> tuple[Any, Any]:
        """The next record's key and value. Raises as `readRecord`."""
        record = self.readRecord()
        return record.key, record.value

    def readRecordsToList(self) -> list[TestRecord]:
        """All that is left."""
        return [self.readRecord() for _ in range(self.getQueueSize())]

    def readValuesToList(self) -> list[Any]:
        """Values of all that is left."""
        return [r.value for r in self.readRecordsToList()]

    def readKeyValuesToList(self) -> list[tuple[Any, Any]]:
        """Keys and values of all that is left."""
        return [(r.key, r.value) for r in self.readRecordsToList()]

    def readKeyValuesToMap(self) -> dict[Any, Any]:
        """The newest value by key, of all that is left."""
        return dict(self.readKeyValuesToList())


@dataclass(frozen=True)
class OutputShape:
    """How an output's bytes are read: ``key_serde`` as in the topology, of windows the inner key's.

    Keys of windowed stores are ``(key, window start in ms)``, keys of several columns `Row`s.
    """

    key_serde: Any
    windowed: bool

    def record(self, message: Message) -> TestRecord:
        """A record as values."""
        raw, body = message.key() or b"", message.value()
        keys = Keys(self.key_serde)
        key: Any
        if self.windowed:
            inner, start = split_output_key(raw)
            key = keys.shown(inner), start
        else:
            key = keys.shown(raw)
        return TestRecord(
            None if body is None else orjson.loads(body),
            key,
            message.timestamp()[1],
            dict(message.headers() or ()),  # type: ignore[arg-type]
            message.partition(),
        )


def dead_letter(message: Message) -> DeadLetter:
    """A record of the dead-letter topic, its headers as fields."""
    said: dict[str, bytes] = dict(message.headers() or ())  # type: ignore[arg-type]
    text = {name.removeprefix("__streams.errors."): at.decode() for name, at in said.items()}
    return DeadLetter(
        topic=text["topic"],
        partition=int(text["partition"]),
        offset=int(text["offset"]),
        reason=text["message"],
        key=message.key(),
        value=message.value(),
        timestamp=int(text["timestamp"]),
        exception=text.get("exception"),
    )


def _json(topic: str, value: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(dict(value), default=_decimal)
    except TypeError as error:
        raise InvalidRequest(
            f"topic {topic!r} is read as json, and {value!r} cannot be: {error}", topic=topic
        ) from error


def _decimal(value: Any) -> str:
    if isinstance(value, Decimal):
        return all_digits(value)
    raise TypeError


def key_bytes(key: Key) -> bytes | None:
    """A record's key as Kafka's own serializers write it.

    Raises:
        InvalidRequest: it is of another type.
    """
    match key:
        case None | bytes():
            return key
        case str():
            return key.encode()
        case int():
            return serde_from("int64").serialize(key)
    raise InvalidRequest(f"keys are str, bytes, int or None, not {type(key).__name__} {key!r}")


def to_ms(time: Time | None) -> int | None:
    """A time in ms since 1970. Raises InvalidRequest for a datetime without a zone."""
    if not isinstance(time, datetime):
        return time
    if time.tzinfo is None:
        raise InvalidRequest(f"{time!r} has no time zone: say which, such as tzinfo=UTC")
    return round(time.timestamp() * 1000)


def known_topic(name: str, known: Sequence[str], what: str) -> None:
    """Raise InvalidRequest for a topic that is none of these."""
    if name not in known:
        raise InvalidRequest(
            f"topic {name!r} is no {what} of this application; it has: {sorted(known)}",
            topic=name,
            known=sorted(known),
        )
