"""Keeps brokers from deleting a replay of old events: ``retention.ms`` counts from event time."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from state_lib.changelog.log import CommitLog
from state_lib.changelog.topics import RETENTION_MARGIN_MS, changelog_topic
from state_lib.protocol.marker import now_ms
from state_lib.specs import Topology
from state_lib.task.batch import Puts

logger = structlog.get_logger(__name__)


class RetentionGuard:
    """Lifts a window changelog's retention while a live window's record would be at risk.

    It is lifted altogether (-1): a replay's windows stay live for as long as its stream time stands
    still, while their age by the wall clock grows past any number. Only the scheduled check
    lowers it again. One guard per task; it remembers what it saw until it `look`s again.
    """

    def __init__(self, log: CommitLog, topology: Topology) -> None:
        self._log = log
        self._app = topology.app
        self._specs = {s.name: s for s in topology.stores if s.is_window}
        self._known: dict[str, int] = {}

    def protect(self, puts: Mapping[str, Puts]) -> None:
        """Before a commit: look at its oldest timestamp per window store.

        Raises:
            Unavailable: Kafka could not be asked; nothing was written yet.
        """
        changed = {store: p for store, p in puts.items() if store in self._specs and p.keys}
        self._keep({store: min(p.timestamps) for store, p in changed.items()})

    def look(self, oldest: Mapping[str, int]) -> None:
        """At start and now and then: an application may be idle for longer than its retention.

        Args:
            oldest: window store → event time (ms) of the oldest record that still counts.

        Raises:
            Unavailable: Kafka could not be asked.
        """
        self._known = {}  # somebody may have changed it
        self._keep(oldest)

    def _keep(self, oldest: Mapping[str, int]) -> None:
        known = self._known
        for store, since in oldest.items():
            topic = changelog_topic(self._app, store)
            age = now_ms() - since
            if store not in known:
                known[store] = self._log.retention_ms(topic)
            retention = known[store]
            if retention == -1 or age < retention - RETENTION_MARGIN_MS // 2:
                continue
            self._log.keep_forever(topic)
            known[store] = -1
            logger.info("lifted retention for old events", topic=topic, was=retention, age_ms=age)


def lift_retention(log: CommitLog, topic: str) -> None:
    """Before old windows are written: brokers remove them by their own time.

    Raises:
        Unavailable: Kafka could not be asked.
    """
    was = log.retention_ms(topic)
    if was != -1:
        log.keep_forever(topic)
        logger.info("lifted retention for old events", topic=topic, was=was)
