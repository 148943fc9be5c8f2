"""``<app>-progress``: every batch as it was decided, before any task saw it.

Align and audit repeat the decisions that stand here. Records of a driver that was superseded may
follow those of its successor in the log, and a crash leaves records of batches that no task ever
committed; `effective` sorts that out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from state_lib.changelog.reader import read
from state_lib.changelog.topics import progress_topic
from state_lib.kafka import Kafka, Partition, ends, starts
from state_lib.marker import flat


@dataclass(frozen=True)
class Recorded:
    """One batch as it was decided."""

    epoch: int
    n: int
    from_: Mapping[Partition, int]
    to: Mapping[Partition, int]
    clock: int
    now: int

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Recorded:
        """From a record's value."""
        return cls(
            data["epoch"],
            data["n"],
            flat(data["from"]),
            flat(data["to"]),
            data["clock"],
            data["now"],
        )

    def covers(self, positions: Mapping[Partition, int]) -> bool:
        """Whether a task at these positions would have this batch next."""
        return any(
            self.from_.get(p, 0) <= positions.get(p, 0) < to for p, to in self.to.items()
        ) and all(positions.get(p, 0) <= to for p, to in self.to.items())


class ProgressLog:
    """Writes and reads an application's progress."""

    def __init__(self, kafka: Kafka, app: str) -> None:
        self._kafka = kafka
        self._topic = progress_topic(app)
        self._producer = kafka.producer(**{"linger.ms": 0})

    def append(self, record: Mapping[str, object]) -> None:
        """Write one record and wait until the brokers have it.

        Raises:
            KafkaException: they did not take it.
        """
        failures: list[object] = []
        self._producer.produce(
            self._topic,
            orjson.dumps(record),
            partition=0,
            on_delivery=lambda error, _message: failures.append(error) if error else None,
        )
        if self._producer.flush(60) or failures:
            from state_lib.errors import Unavailable  # noqa: PLC0415

            raise Unavailable(
                f"Kafka did not take a progress record: {failures or 'no answer in 60 s'}; the "
                "batch has not begun and is tried again",
            )

    def read(self) -> list[Recorded]:
        """Every record, in log order."""
        admin = self._kafka.admin()
        at = (self._topic, 0)
        first, end = starts(admin, [at])[at], ends(admin, [at])[at]
        out: list[Recorded] = []
        for messages in read(self._kafka, self._topic, 0, first, end):
            out += [Recorded.from_json(orjson.loads(m.value() or b"{}")) for m in messages]
        return out


def effective(records: Iterable[Recorded]) -> list[Recorded]:
    """The batches that stand, in order: later epochs override earlier ones from where they start.

    A batch that no task committed is overridden by whatever started at the same positions later;
    an aligned batch is recorded again under the new epoch with the clock it had before.
    """
    chain: list[Recorded] = []
    in_order = sorted(enumerate(records), key=lambda pair: (pair[1].epoch, pair[0]))
    for _, record in in_order:
        if record.from_ == record.to:
            continue  # a tick, or initial positions: no records, nothing to judge
        while chain and _reaches(chain[-1], record):
            chain.pop()
        chain.append(record)
    return chain


def _reaches(earlier: Recorded, later: Recorded) -> bool:
    """Whether ``earlier`` starts at or beyond the start of ``later`` in every partition."""
    both = earlier.from_.keys() & later.from_.keys()
    return all(earlier.from_[p] >= later.from_[p] for p in both)
