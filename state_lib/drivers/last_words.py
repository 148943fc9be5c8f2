"""How drivers ended, in their own words: a record each, of which the newest are kept.

Under one key for all of them compaction would leave the newest: a driver that was refused would
take the words of the one that a supervisor watches, and that it has not read yet.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from confluent_kafka import Message

from state_lib.changelog.claims import ENDED, Claim, tell
from state_lib.changelog.reader import read
from state_lib.changelog.topics import topology_topic
from state_lib.drivers.sight import Ended
from state_lib.exits import IN_LOG
from state_lib.kafka import Kafka, ends, starts

KEPT = 8
BEGINS = "starting"
"""The event of its log with which a driver begins."""
_NO_PROGRAM = ("SyntaxError: ", "IndentationError: ", "TabError: ")
_OWN = ENDED + b"/"


def key_of(driver: str) -> bytes:
    """The key of a driver's last words; in older versions it is `ENDED` for all."""
    return _OWN + driver.encode()


def is_end(key: bytes | str | None) -> bool:
    """Whether a record of the topology topic is a driver's last words."""
    return isinstance(key, bytes) and (key == ENDED or key.startswith(_OWN))


def end_in(record: Message) -> Ended:
    """A driver's last words, from their record."""
    return _end(orjson.loads(record.value() or b""))


def _end(said: Mapping[str, Any]) -> Ended:
    words = {key: said[key] for key in ("id", "how", "why", "retry")}
    later = {key: said[key] for key in ("restarts", "handover") if key in said}
    return Ended(**words, **later)


def end_in_log(lines: Sequence[str], driver: str) -> Ended | None:
    """A driver's last words, from the end of its log; None if it said none there.

    A job that does not compile says none of ours: Python's own are enough, unless a driver has
    begun after them, of a job that did compile.
    """
    has_begun = False
    for line in reversed(lines):
        if line.startswith(_NO_PROGRAM) and not has_begun:
            return Ended(driver, "failed", line, retry=False)
        if IN_LOG not in line and BEGINS not in line:
            continue
        with contextlib.suppress(orjson.JSONDecodeError, KeyError, TypeError):
            said = orjson.loads(line)
            has_begun |= said["event"] == BEGINS
            if (said["event"], said["id"]) == (IN_LOG, driver):
                return _end(said)
    return None


class LastWords:
    """The newest `KEPT` ends, and that of the driver with the newest claim, oldest first."""

    def __init__(self) -> None:
        self._ended: dict[str, Ended] = {}

    def take(self, end: Ended, holder: str | None) -> list[str]:
        """One more end; ids of the drivers that are forgotten for it.

        Args:
            end: the newest.
            holder: id of the driver with the newest claim.
        """
        self._ended.pop(end.id, None)
        self._ended[end.id] = end
        newest = {holder, *list(self._ended)[-KEPT:]}
        gone = [driver for driver in self._ended if driver not in newest]
        for driver in gone:
            del self._ended[driver]
        return gone

    def ends(self) -> tuple[Ended, ...]:
        """All that are remembered."""
        return tuple(self._ended.values())


def prune(kafka: Kafka, app: str, timeout_s: float) -> None:
    """Delete the records of those whose ends no watcher remembers; the rest is left for another.

    Args:
        kafka: connection.
        app: whose.
        timeout_s: for how long to go on; how long the last deletion may take is the same.

    Raises:
        Unavailable: Kafka cannot be asked, or did not take it.
        ConfigurationError: a claim is one of a newer Holdfast.
    """
    topic, admin, until = topology_topic(app), kafka.admin(), time.monotonic() + timeout_s
    at = (topic, 0)
    words, holder, gone = LastWords(), None, dict[bytes, None]()
    for records in read(kafka, topic, 0, starts(admin, [at])[at], ends(admin, [at])[at]):
        for record in records:
            key = record.key()
            if key == app.encode() and record.value() is not None:
                holder = Claim.of(record).by.get("id")
            elif isinstance(key, bytes) and key.startswith(_OWN):
                gone.pop(key, None)
                if record.value() is not None:
                    forgotten = words.take(end_in(record), holder)
                    gone |= {key_of(driver): None for driver in forgotten}
    for key in gone:
        if time.monotonic() > until:
            return
        tell(kafka, app, key, None, timeout_s)
