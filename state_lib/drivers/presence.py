"""What a driver shows of itself: that it lives, where it can be looked at, how it ended."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import structlog
from confluent_kafka import KafkaException

from state_lib.changelog.claims import STREAMING, tell
from state_lib.changelog.topics import driver_group, topology_topic
from state_lib.drivers.identity import Identity
from state_lib.drivers.last_words import key_of, prune
from state_lib.drivers.sight import How
from state_lib.errors import HoldfastError
from state_lib.exits import IN_LOG
from state_lib.kafka import Kafka, describe, unavailable
from state_lib.kafka_door import is_forbidden
from state_lib.protocol.marker import now_ms

log = structlog.get_logger(__name__)
SESSION_TIMEOUT_MS = 6000
"""After which Kafka drops a driver that was killed: the least that brokers allow by default."""
_POLL_S = 0.5
_LEAVE_S = 5.0
_LAST_WORDS_S = 10.0


class Presence:
    """A member of ``<app>-driver`` for as long as this process is the application's driver."""

    def __init__(self, kafka: Kafka, app: str, who: Identity) -> None:
        self._kafka, self._app, self.who = kafka, app, who
        self._leaving = threading.Event()
        self._thread: threading.Thread | None = None
        self._refused: HoldfastError | None = None

    def join(self) -> None:
        """Join, once the topology topic exists. Again: nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._stay, name="presence", daemon=True)
            self._thread.start()

    def check(self) -> None:
        """Whether this driver can be seen.

        Raises:
            KafkaRefused: it may not join its group: watchers would take it for dead.
        """
        if self._refused is not None:
            raise self._refused

    def streaming(self, epoch: int, ui: str | None) -> None:
        """Report that the stream runs, and the address of Spark's UI; failures are ignored.

        Takes half a second: call it in a thread.
        """
        self._say(STREAMING, {"epoch": epoch, "ui": ui})

    def leave(self, how: How, why: str, *, retry: bool = True, handover: bool = False) -> None:
        """Say how this driver ended, and leave the group.

        Args:
            how: ``stopped``, ``superseded`` or ``failed``.
            why: for people.
            retry: whether starting it again could help.
            handover: as `Ended`.
        """
        # In the log, too: a driver that is refused before its first claim has no topic.
        words = self.who.last_words(how, why, retry=retry, handover=handover)
        log.info(IN_LOG, **words)
        said = False
        if self._ever_ran():
            said = self._say(key_of(self.who.id), words)
        if self._thread is not None:
            self._leaving.set()
            self._thread.join(_LEAVE_S)
        if said:
            self._forget_old_ones()

    def _forget_old_ones(self) -> None:
        try:
            prune(self._kafka, self._app, _LAST_WORDS_S)
        except (HoldfastError, KafkaException) as error:
            log.warning("last words of earlier drivers are left for another", why=str(error))

    def _ever_ran(self) -> bool:
        """Whether there is a topic to say it in: to write would make one where brokers do so."""
        topic = topology_topic(self._app)
        try:
            return bool(describe(self._kafka.admin(), [topic], _LAST_WORDS_S))
        except HoldfastError as error:
            log.warning("could not tell the watchers", why=error.message)
            return False

    def _say(self, key: bytes, body: dict[str, Any]) -> bool:
        """Whether it could be said."""
        try:
            who = {"id": self.who.id, "restarts": self.who.restarts}
            words = {**who, "at": now_ms(), **body}
            tell(self._kafka, self._app, key, words, _LAST_WORDS_S)
        except HoldfastError as error:
            log.warning("could not tell the watchers", why=error.message)
            return False
        return True

    def _stay(self) -> None:
        consumer = self._kafka.reader(
            **{
                "group.id": driver_group(self._app),
                "client.id": self.who.id,
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": SESSION_TIMEOUT_MS // 3,
            }
        )
        try:
            # Only membership counts: the member that is assigned the partition does not read it.
            consumer.subscribe(
                [topology_topic(self._app)], on_assign=lambda member, _: member.assign([])
            )
            while not self._leaving.is_set():
                message = consumer.poll(_POLL_S)
                error = None if message is None else message.error()
                if error is not None and is_forbidden(error):
                    what = f"join group {driver_group(self._app)!r}"
                    self._refused = unavailable(what, error, self._kafka)
        finally:
            with contextlib.suppress(RuntimeError):
                consumer.close()
