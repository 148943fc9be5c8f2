"""Topics that somebody deletes, makes again or cuts."""

from __future__ import annotations

from confluent_kafka import TopicPartition

from state_lib.kafka import describe, starts
from tests.support.apps import App
from tests.support.waiting import until


def deleted(app: App, *topics: str) -> None:
    """Delete topics."""
    for future in app.kafka.admin().delete_topics([*topics]).values():
        future.result()
    until(lambda: not describe(app.kafka.admin(), topics))


def made_again(app: App, *topics: str) -> None:
    """Delete topics and create them anew, as `app.create` would."""
    deleted(app, *topics)
    app.create()


def cut(app: App, topic: str, offset: int) -> None:
    """Remove what lies before an offset of partition 0, as ``kafka-delete-records`` does."""
    for future in app.kafka.admin().delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result()
    assert starts(app.kafka.admin(), [(topic, 0)])[topic, 0] == offset
