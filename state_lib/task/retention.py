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
    """Removes a window changelog's retention if it endangers records of live windows.

    It is set to -1: windows of a replay are live as long as its stream time stands still, while
    their age by wall time grows without bound. Only the scheduled check sets it again. One guard
    per task; it caches the topics' settings until the next `look`.
    """

    def __init__(self, log: CommitLog, topology: Topology) -> None:
        self._log = log
        self._app = topology.app
        self._specs = {s.name: s for s in topology.stores if s.is_window}
        self._known: dict[str, int] = {}

    def protect(self, puts: Mapping[str, Puts]) -> None:
        """Before a commit: check its oldest timestamp per window store.

        Raises:
            Unavailable: Kafka could not be asked; nothing was written yet.
        """
        changed = {store: p for store, p in puts.items() if store in self._specs and p.keys}
        self._keep({store: min(p.timestamps) for store, p in changed.items()})

    def look(self, oldest: Mapping[str, int]) -> None:
        """Check at start and regularly: an application may be idle for longer than its retention.

        Args:
            oldest: window store → event time (ms) of the oldest live record.

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
    """Let a topic keep records of any age, before old windows are written to it.

    Raises:
        Unavailable: Kafka could not be asked.
    """
    was = log.retention_ms(topic)
    if was != -1:
        log.keep_forever(topic)
        logger.info("lifted retention for old events", topic=topic, was=was)
