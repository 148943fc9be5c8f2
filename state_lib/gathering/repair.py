"""Sets what checks would have different: the one thing here that alters anything."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from state_lib.apps.sizes import owned_topics
from state_lib.changelog.admin import set_topic_configs
from state_lib.changelog.claims import topology_of
from state_lib.checks.verdict import Change
from state_lib.errors import InvalidRequest
from state_lib.kafka import Kafka


def set_changes(kafka: Kafka, app: str, changes: Iterable[Change]) -> None:
    """Alter topics of an application, one after the other; each wholly or not at all.

    Raises:
        InvalidRequest: one of them is not the application's own; nothing was altered.
        Unavailable, KafkaRefused: topics before it were altered; run it again.
    """
    by_topic: dict[str, dict[str, str]] = defaultdict(dict)
    for change in changes:
        by_topic[change.topic][change.key] = change.wanted
    owned = owned_topics(topology_of(kafka, app))
    if foreign := sorted(by_topic.keys() - owned.keys()):
        raise InvalidRequest(
            f"{app!r} does not own {', '.join(foreign)}: only its own topics are altered",
            app=app,
            topics=foreign,
        )
    for topic, config in by_topic.items():
        set_topic_configs(kafka.admin(), topic, config)
