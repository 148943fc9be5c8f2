"""Requests that reach a driver wherever it runs, through its application's topology topic."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import orjson
from confluent_kafka import Message

from state_lib.changelog.claims import HANDOVER, MAKE_WAY, STOP, Claim, tell
from state_lib.changelog.reader import read
from state_lib.changelog.topics import topology_topic
from state_lib.drivers.identity import HEEDS_VARIABLE, Identity
from state_lib.drivers.sight import How, Stop
from state_lib.errors import NotFound, Superseded, TopicRecreated, Unavailable
from state_lib.kafka import Kafka, describe, ends
from state_lib.protocol.marker import now_ms

GONE_S = 10.0
"""For how long the topic must be missing to be gone."""


def ask_to_stop(kafka: Kafka, app: str, *, why: str, handover: bool = False) -> None:
    """Ask the drivers that were launched before now to stop at a batch's edge.

    Args:
        kafka: connection.
        app: whose drivers.
        why: for people.
        handover: the driver is to end but not its stream: its supervisor starts a new one. It does
            not cancel a stop that is asked for before or after it.

    Raises:
        NotFound: the application has never run on these brokers.
        Unavailable: the brokers did not take the request.
    """
    topic = topology_topic(app)
    if not describe(kafka.admin(), [topic]):
        raise NotFound(
            f"application {app!r} has never run on these brokers: there is no topic {topic!r}. "
            "Look at the name, and at HOLDFAST_BOOTSTRAP_SERVERS. (If that topic was deleted, its "
            f"drivers end by themselves within seconds; then: holdfast repair topology {app})",
            app=app,
        )
    tell(kafka, app, HANDOVER if handover else STOP, {"why": why, "at": now_ms()})


def stop_of(record: Message) -> Stop:
    """A request, from its record."""
    said = orjson.loads(record.value() or b"{}")
    return Stop(record.offset() or 0, str(said.get("why", "")))


class Control:
    """What is said to the driver of this process: requests, and claims of newer drivers.

    Requests count from where its launcher looked (``HOLDFAST_DRIVER_HEEDS_FROM``), else from its
    beginning on: one that comes between launch and claim is heeded.
    """

    def __init__(self, kafka: Kafka, app: str, who: Identity) -> None:
        self._kafka, self._app, self._who = kafka, app, who
        self._topic = topology_topic(app)
        self._at: int | None = None
        self._topic_id: str | None = None
        self._is_made_again = False
        self._missing_since: float | None = None
        self.stop: Stop | None = None
        """What the stream of this driver was asked to stop by."""
        self._handover: Stop | None = None
        self.made_way: str | None = None
        """For whom this driver was asked to make way."""

    def begin(self) -> None:
        """Heed what is said from now on; the first call counts.

        Raises:
            Unavailable: Kafka cannot be asked.
        """
        if self._at is None:
            self._topic_id = self._id()
            end = self._end() if self._topic_id else 0
            given = os.environ.get(HEEDS_VARIABLE, "")
            self._at = min(int(given), end) if given.isdigit() else end

    def ask_to_make_way(self, drivers: Sequence[str], why: str) -> None:
        """Ask drivers, by id, to come to a batch's edge and end as superseded.

        Raises:
            Unavailable: the brokers did not take the request.
        """
        tell(self._kafka, self._app, MAKE_WAY, {"why": why, "to": list(drivers)})

    def heed(self, epoch: int | None) -> str | None:
        """Read what was said since the last call; why to stop, if so.

        Args:
            epoch: of our claim; None before it, as it overrides all claims until then.

        Raises:
            Superseded: another process has claimed after ``epoch``.
            TopicRecreated: the topic was deleted: nothing could be said to this driver any more.
            Unavailable: Kafka cannot be asked.
        """
        there, known = self._id(), self._topic_id
        self._require_there(there, known)
        if there and known and there != known:  # a claim in the new topic is later than ours
            self._is_made_again, self._at = True, 0
        self._topic_id = there or known
        end, start = self._end(), self._at or 0
        rival: Claim | None = None
        for records in read(self._kafka, self._topic, 0, start, end):
            for record in records:
                if epoch is not None and record.key() == self._app.encode():
                    claim = Claim.of(record)
                    if not self._is_ours(claim):
                        is_newer = self._is_made_again or claim.epoch > epoch
                        rival = rival or (claim if is_newer else None)
                    elif self._is_made_again:  # from here on epochs can be compared again
                        self._is_made_again, rival = False, None
                self._hear(record)
        if rival is not None and epoch is not None:
            raise _superseded(epoch, rival)
        self._at = end
        if self.made_way is not None:
            return self.made_way
        asked = self.stop or self._handover
        return None if asked is None else asked.why

    def _require_there(self, there: str | None, known: str | None) -> None:
        """Brokers that start may not know a topic yet: it must be missing for a while."""
        if there is not None or known is None:
            self._missing_since = None
            return
        self._missing_since = self._missing_since or time.monotonic()
        text = f"topic {self._topic!r} does not exist any more (its id was {known})"
        if time.monotonic() - self._missing_since < GONE_S:
            raise Unavailable(f"{text}: it is looked at again", topic=self._topic)
        raise TopicRecreated(
            f"{text}: it was deleted, and nothing can be said to this driver any more: it exits. "
            f"'holdfast repair topology {self._app}' writes it anew from what hosts remember",
            topic=self._topic,
            expected_id=known,
        )

    def _hear(self, record: Message) -> None:
        if record.key() == STOP:
            self.stop = stop_of(record)
        if record.key() == HANDOVER:
            self._handover = stop_of(record)
        if record.key() == MAKE_WAY:
            said = orjson.loads(record.value() or b"{}")
            if self._who.id in said.get("to", ()):
                self.made_way = str(said.get("why", ""))

    @property
    def ending(self) -> tuple[How, str]:
        """How a driver that stops at a batch's edge ends, and why."""
        if self.made_way is not None:
            return "superseded", self.made_way
        asked = self.stop or self._handover
        return "stopped", "it got a signal to stop" if asked is None else asked.why

    @property
    def handover(self) -> bool:
        """Whether this driver, and not its stream, was asked to stop."""
        return self.stop is None and self._handover is not None

    def _is_ours(self, claim: Claim) -> bool:
        """Written by this process, whose answer was lost. An id alone may be inherited."""
        ours = self._who.to_json()
        return all(claim.by.get(key) == ours[key] for key in ("id", "host", "pid"))

    def _id(self) -> str | None:
        """Kafka's id of the topic; None if there is none."""
        there = describe(self._kafka.admin(), [self._topic]).get(self._topic)
        return None if there is None else there.id

    def _end(self) -> int:
        at = (self._topic, 0)
        return ends(self._kafka.admin(), [at])[at]


def _superseded(epoch: int, claim: Claim) -> Superseded:
    app, notice = claim.topology.app, claim.notice
    why = "another driver was started" if notice is None else f"its {notice.kind} was asked for"
    return Superseded(
        f"epoch {epoch} of application {app!r} was superseded by a claim at offset {claim.epoch}: "
        f"{why}; this driver exits",
        epoch=epoch,
        current=claim.epoch,
    )
