"""How large a record may be."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient

from state_lib.changelog.limits import size_limits
from state_lib.changelog.topics import changelog_topic
from state_lib.declaration import Declaration


def record_limits(admin: AdminClient, app: Declaration) -> dict[str, int]:
    """Store → the least limit (bytes) of its topics; the usual limit for missing topics.

    A processor has an entry under its own name: the least limit of all its topics.
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
