"""Questions to Kafka that must survive what brokers do."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.cimpl import NewTopic

from state_lib.errors import ConfigurationError
from state_lib.kafka import Kafka, ends
from state_lib.spark.claims import check_no_collision, write_claim
from state_lib.specs import StoreSpec, Topology
from state_lib.stack.broker import LocalBroker
from tests.support.apps import app_of


def test_offsets_are_told_after_a_broker_was_killed(tmp_path: Path) -> None:
    """librdkafka alone is refused for ever: FENCED_LEADER_EPOCH."""
    with LocalBroker(tmp_path / "broker") as broker:
        kafka = Kafka({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        partitions = [("t", p) for p in range(3)]
        kafka.admin().create_topics([NewTopic("t", 3, 1)])["t"].result()
        producer = kafka.producer()
        for _, p in partitions:
            producer.produce("t", b"x", partition=p)
        producer.flush()
        assert ends(kafka.admin(), partitions) == dict.fromkeys(partitions, 1)
        broker.kill()
        broker.start()
        assert ends(kafka.admin(), partitions) == dict.fromkeys(partitions, 1)


def test_applications_that_would_share_a_changelog_are_refused(
    kafka: Kafka, name: str, tmp_path: Path
) -> None:
    first = app_of(kafka, name, tmp_path, [StoreSpec("b-c")], [])
    first.create()
    write_claim(kafka, first.topology)
    check_no_collision(kafka, first.topology)
    check_no_collision(kafka, Topology(f"{name}-b", 1, (StoreSpec("other"),)))
    with pytest.raises(ConfigurationError, match=f"{name}-b-c-changelog.*{name!r}"):
        check_no_collision(kafka, Topology(f"{name}-b", 1, (StoreSpec("c"),)))
