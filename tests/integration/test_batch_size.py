"""A batch's bytes are bounded by what the topic's records are like."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from state_lib.config import Settings
from state_lib.driver.batch_size import BatchSize, records_within
from state_lib.kafka import Kafka
from state_lib.loading import PARTITIONS, Record, publish
from state_lib.stack.broker import LocalBroker

BOUND = 1_000_000


@pytest.fixture
def settings(broker: LocalBroker, tmp_path: Path) -> Settings:
    return Settings.load(
        home=tmp_path,
        bootstrap_servers=broker.bootstrap,
        replication_factor=1,
        max_bytes_per_trigger=BOUND,
    )


def test_large_records_come_in_small_batches(settings: Settings) -> None:
    records = [Record(b"k" * 100, b"v" * 9_900, i) for i in range(1, 301)]
    publish(settings, "pace-large", records, total=300)
    publish(settings, "pace-small", [Record(b"k", b"v" * 9, 1)], total=1)
    kafka = Kafka.of(settings)
    small = {("pace-small", p): 0 for p in range(PARTITIONS)}
    assert records_within(kafka, small, BOUND) == 100_000
    large = {("pace-large", p): 0 for p in range(PARTITIONS)}
    assert records_within(kafka, small | large, BOUND) == 100
    size = BatchSize(settings)
    assert size.within(kafka, large) == 100
    assert size.within(kafka, small) == size.records < 100_000

    larger = [Record(b"k" * 100, os.urandom(199_900), i) for i in range(1, 31)]
    publish(settings, "pace-larger", larger, total=30)
    most = records_within(kafka, {("pace-larger", p): 0 for p in range(PARTITIONS)}, BOUND)
    assert most == 5, "one is more than a sample fetches at once"

    read = dict.fromkeys(large, 300)
    assert records_within(kafka, read, BOUND) == 100, "also at the head, and where one is empty"
    assert records_within(kafka, {}, BOUND) == BOUND, "a byte each at least"
