"""Requests that reach a driver wherever it runs, through its application's topology topic."""

from __future__ import annotations

import os

import orjson

from state_lib.changelog.claims import STOP, Claim, tell
from state_lib.changelog.reader import read
from state_lib.changelog.topics import topology_topic
from state_lib.drivers.identity import HEEDS_VARIABLE
from state_lib.errors import NotFound, Superseded
from state_lib.kafka import Kafka, describe, ends
from state_lib.marker import now_ms


def ask_to_stop(kafka: Kafka, app: str, *, why: str) -> int:
    """Ask the drivers that run now to stop at a batch's edge. One that starts later does not heed.

    Returns:
        The request's offset.

    Raises:
        NotFound: the application has never run on these brokers.
        Unavailable: the brokers did not take the request.
    """
    topic = topology_topic(app)
    if not describe(kafka.admin(), [topic]):
        raise NotFound(
            f"application {app!r} has never run on these brokers: there is no topic {topic!r}. "
            "Look at the name, and at HOLDFAST_BOOTSTRAP_SERVERS",
            app=app,
        )
    return tell(kafka, app, STOP, {"why": why, "at": now_ms()})


class Control:
    """What is said to the driver of this process: requests, and claims of newer drivers.

    Requests count from where its launcher looked (``HOLDFAST_DRIVER_HEEDS_FROM``), else from its
    beginning on: one that comes between launch and claim is heeded.
    """

    def __init__(self, kafka: Kafka, app: str) -> None:
        self._kafka, self._app = kafka, app
        self._topic = topology_topic(app)
        self._at: int | None = None
        self._own = -1
        self.stop: str | None = None
        """Why this driver was asked to stop."""

    def begin(self) -> None:
        """Heed what is said from now on; the first call counts.

        Raises:
            Unavailable: Kafka cannot be asked.
        """
        if self._at is None:
            known = describe(self._kafka.admin(), [self._topic])
            end = self._end() if known else 0
            given = os.environ.get(HEEDS_VARIABLE, "")
            self._at = min(int(given), end) if given.isdigit() else end

    def ask_others_to_stop(self, why: str) -> None:
        """As `ask_to_stop`; this driver does not heed it. Raises as that."""
        self._own = ask_to_stop(self._kafka, self._app, why=why)

    def heed(self, epoch: int) -> str | None:
        """Read what was said since the last call; why to stop, if so.

        Raises:
            Superseded: a claim was written after that of ``epoch``.
            Unavailable: Kafka cannot be asked.
        """
        end = self._end()
        for records in read(self._kafka, self._topic, 0, self._at or 0, end):
            for record in records:
                if record.key() == self._app.encode() and (record.offset() or 0) > epoch:
                    raise _superseded(epoch, Claim.of(record))
                if record.key() == STOP and record.offset() != self._own:
                    self.stop = str(orjson.loads(record.value() or b"{}").get("why", ""))
        self._at = end
        return self.stop

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
