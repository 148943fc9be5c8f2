"""Keeps brokers from deleting a replay of old events: ``retention.ms`` counts from event time."""

from __future__ import annotations

from collections.abc import Mapping

import structlog
from confluent_kafka.admin import AdminClient

from state_lib.changelog.admin import set_topic_config, topic_configs
from state_lib.changelog.topics import RETENTION_MARGIN_MS, changelog_topic
from state_lib.marker import now_ms
from state_lib.specs import Topology
from state_lib.task.batch import Puts

log = structlog.get_logger(__name__)


class RetentionGuard:
    """Lifts a window changelog's retention before a commit whose oldest record would be at risk.

    It is lifted altogether (-1): a replay's windows stay live for as long as its clock stands
    still, while their age by the wall clock grows past any number. Only the scheduled check
    lowers it again. One guard per task; it remembers what it set.
    """

    def __init__(self, admin: AdminClient, topology: Topology) -> None:
        self._admin = admin
        self._app = topology.app
        self._specs = {s.name: s for s in topology.stores if s.is_window}
        self._known: dict[str, int] = {}

    def protect(self, puts: Mapping[str, Puts]) -> None:
        """Look at the oldest timestamp per window store, and raise the retention if it is near.

        Raises:
            Unavailable: Kafka could not be asked; nothing was written yet.
        """
        for store, changes in puts.items():
            spec = self._specs.get(store)
            if spec is None or not changes.keys:
                continue
            topic = changelog_topic(self._app, store)
            age = now_ms() - min(changes.timestamps)
            if store not in self._known:
                configs = topic_configs(self._admin, [topic])
                self._known[store] = int(configs[topic]["retention.ms"])
            retention = self._known[store]
            if retention == -1 or age < retention - RETENTION_MARGIN_MS // 2:
                continue
            set_topic_config(self._admin, topic, "retention.ms", "-1")
            self._known[store] = -1
            log.info("lifted retention for old events", topic=topic, was=retention, age_ms=age)
