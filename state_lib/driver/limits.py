"""How large a record may be."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient

from state_lib.changelog.limits import size_limits
from state_lib.changelog.topics import changelog_topic
from state_lib.declaration import Declaration


def record_limits(admin: AdminClient, app: Declaration) -> dict[str, int]:
    """Per store, what the strictest of its topics takes (bytes); a usual value for missing ones.

    Of a processor under its own name: the strictest of all its topics.
    """
    into = {
        verb.store.name: [changelog_topic(app.id, verb.store.name), *verb.kept.outputs]
        for verb in app.aggregations
    }
    into |= {
        verb.name: [*(changelog_topic(app.id, s.name) for s in verb.stores), *verb.topics]
        for verb in app.processes
    }
    limits = size_limits(admin, [topic for topics in into.values() for topic in topics])
    return {store: min(limits[topic] for topic in topics) for store, topics in into.items()}
