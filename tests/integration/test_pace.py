"""A batch's bytes are bounded by what the topic's records are like."""

from __future__ import annotations

from pathlib import Path

import pytest

from state_lib.config import Settings
from state_lib.kafka import Kafka
from state_lib.loading import PARTITIONS, Record, publish
from state_lib.spark.pace import FIRST, pace_of
from state_lib.stack.broker import LocalBroker


@pytest.fixture
def settings(broker: LocalBroker, tmp_path: Path) -> Settings:
    flags = {"max_bytes_per_trigger": "1MB", "replication_factor": 1}
    return Settings.load(home=tmp_path, bootstrap_servers=broker.bootstrap, **flags)


def test_large_records_come_in_small_batches(settings: Settings) -> None:
    records = [Record(b"k" * 100, b"v" * 9_900, i) for i in range(1, 301)]
    publish(settings, "pace-large", records, total=300)
    publish(settings, "pace-small", [Record(b"k", b"v" * 9, 1)], total=1)
    kafka = Kafka.of(settings)
    small = {("pace-small", p): 0 for p in range(PARTITIONS)}
    assert pace_of(kafka, small, settings).size == FIRST
    large = {("pace-large", p): 0 for p in range(PARTITIONS)}
    assert pace_of(kafka, small | large, settings).size == 100

    assert pace_of(kafka, dict.fromkeys(large, 300), settings).size == 100, "also at the head"
    assert pace_of(kafka, {}, settings).size == FIRST
