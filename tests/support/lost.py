"""Topics that somebody deletes, makes again or cuts."""

from __future__ import annotations

from confluent_kafka import KafkaException, TopicPartition

from state_lib.changelog.admin import set_topic_config
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
    """Remove what lies before an offset of partition 0, as ``kafka-delete-records`` does.

    Brokers refuse that for a topic that is only compacted: somebody had another policy for a while.
    """
    admin = app.kafka.admin()

    def removed() -> bool:
        try:
            for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
                future.result()
        except KafkaException as error:
            if error.args[0].name() != "POLICY_VIOLATION":
                raise
            return False
        return True

    set_topic_config(admin, topic, "cleanup.policy", "compact,delete")
    set_topic_config(admin, topic, "retention.ms", "-1")
    until(removed)  # brokers heed a new policy a moment later
    set_topic_config(admin, topic, "cleanup.policy", "compact")
    assert starts(app.kafka.admin(), [(topic, 0)])[topic, 0] == offset
