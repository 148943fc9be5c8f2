"""Topics that somebody deletes, makes again or cuts."""

from __future__ import annotations

from dataclasses import replace

from confluent_kafka import KafkaException, TopicPartition

from state_lib.changelog.admin import set_topic_config
from state_lib.changelog.topics import commits_topic, transactional_id
from state_lib.changelog.writer import TransactionalWriter
from state_lib.kafka import describe, ends, starts
from state_lib.task.opening import newest_marker, write_marker
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


def ends_early(app: App, topic: str) -> None:
    """As after an unclean election: the same topic, and its end lies before what was committed.

    Brokers do not do that on request: here the marker of task 0, which is closed, says more.
    """
    writer = TransactionalWriter(
        app.kafka, transactional_id(app.name, 0), 0, topic=commits_topic(app.name)
    )
    writer.open()
    # Not before: the record that ends a transaction comes after its commit was answered.
    end = ends(app.kafka.admin(), [(topic, 0)])[topic, 0]
    marker = newest_marker(app.kafka, app.topology, 0)
    more = replace(marker, cut={**marker.cut, topic: [end + 1, 1]})
    write_marker(writer, app.topology, 0, more)
    writer.close()


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
