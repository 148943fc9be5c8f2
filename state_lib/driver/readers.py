"""The Avro schema that a topic was read by before: a batch that it began is finished with it."""

from __future__ import annotations

import structlog
from confluent_kafka import KafkaException

from state_lib.changelog.claims import newest_claim
from state_lib.config import Settings
from state_lib.drivers.members import living_drivers
from state_lib.errors import HoldfastError
from state_lib.kafka import Kafka
from state_lib.task.opening import last_marker

log = structlog.get_logger(__name__)


def of_before(settings: Settings, app: str, topic: str, newest: str) -> str | None:
    """The schema that the last driver read a topic by, if it differs and is still needed.

    It is needed while tasks stand at two positions: a job with another schema is other code, which
    may not finish a batch that some tasks have committed (`state_lib.driver.versions`). A driver
    that still runs ends at a batch's edge before another takes over.

    Args:
        settings: where Kafka is. If it does not answer, None: the check before the claim decides.
        app: the application.
        topic: the topic.
        newest: the schema that it would be read by.
    """
    try:
        kafka = Kafka.of(settings)
        claim = newest_claim(kafka, app)
        before: str | None = None
        if claim is not None and claim.notice is None:
            before = claim.by.get("readers", {}).get(topic)
        if claim is None or before in (None, newest) or living_drivers(kafka, app):
            return None
        markers = [last_marker(kafka, app, p) for p in range(claim.topology.partitions)]
    except (HoldfastError, KafkaException) as error:
        log.warning("what the last driver read by cannot be looked up", app=app, why=str(error))
        return None
    first, *others = [marker.positions for marker in markers]
    return before if any(one != first for one in others) else None
