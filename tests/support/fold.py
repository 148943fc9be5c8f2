"""What Kafka holds, seen by a plain consumer: shares no code with state_lib."""

from __future__ import annotations

import time
from functools import cache

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.support.waiting import deadline_in


@cache
def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def _settle(bootstrap: str, topic: str, partition: int) -> None:
    """A commit is acknowledged before the brokers have marked its records as committed."""
    admin = _admin(bootstrap)
    where = {TopicPartition(topic, partition): OffsetSpec.latest()}  # type: ignore[no-untyped-call]
    deadline = deadline_in(60)
    why: object = "a transaction stays open"
    while time.monotonic() < deadline:
        try:
            stable, last = (
                next(iter(admin.list_offsets(where, isolation_level=level).values())).result()
                for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
            )
        except KafkaException as error:  # after a broker's start the leader is another one, or none
            why = error
            # A client that has looked in that moment may find none for as long as it lives [seen
            # once: three minutes], others do.
            _admin.cache_clear()
            admin = _admin(bootstrap)
            time.sleep(0.2)
        else:
            if stable.offset == last.offset >= 0:  # -1001: the broker went away meanwhile
                return
            why = f"a transaction stays open: {stable.offset} of {last.offset} in {partition}"
        time.sleep(0.02)
    raise TimeoutError(f"{topic}: {why}")


def committed(bootstrap: str, topic: str, partition: int = 0) -> list[Message]:
    """Every committed record of a partition that is still there, in order."""
    _settle(bootstrap, topic, partition)
    deadline = deadline_in(60)
    while time.monotonic() < deadline:
        found = _read(bootstrap, topic, partition, deadline)
        if found is not None:
            return found
    raise TimeoutError(f"{topic}: the end of partition {partition} was not reached")


def _read(bootstrap: str, topic: str, partition: int, deadline: float) -> list[Message] | None:
    """By a client of its own; None if that hears nothing for long: see `_settle`."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "fold",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 20,
            "log_level": 0,
        }
    )
    found: list[Message] = []
    silent = deadline_in(10)
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while time.monotonic() < min(silent, deadline):
            message = consumer.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append(message)
                silent = deadline_in(10)
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
        return None
    finally:
        consumer.close()


def fold(
    bootstrap: str, topic: str, partition: int = 0, *, timestamped: bool = False
) -> dict[bytes, bytes]:
    """The state that a changelog stands for, as stored."""
    state: dict[bytes, bytes] = {}
    for message in committed(bootstrap, topic, partition):
        key, value = message.key() or b"", message.value()
        if value is None:
            state.pop(key, None)
        else:
            stamp = message.timestamp()[1].to_bytes(8, "big", signed=True) if timestamped else b""
            state[key] = stamp + value
    return state
