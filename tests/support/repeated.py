"""Changelogs that have much to clean: the same keys again and again."""

from __future__ import annotations

import os
from pathlib import Path

from state_lib.changelog.admin import set_topic_configs
from state_lib.kafka import Kafka, ends
from state_lib.protocol.marker import now_ms
from tests.support.apps import KV, App, app_of
from tests.support.waiting import until

MIB = 1 << 20
KEYS, VALUE = 100, 2000


def made(kafka: Kafka, name: str, folder: Path, **config: str) -> App:
    """An application with short segments."""
    app = app_of(kafka, name, folder, [KV])
    app.create()
    given = {"segment.bytes": str(MIB)} | {k.replace("_", "."): v for k, v in config.items()}
    set_topic_configs(kafka.admin(), app.topic("kv"), given)
    return app


def write(app: App, mib: int) -> None:
    """The same keys again and again, in transactions, with values that lz4 cannot shorten.

    A commit is acknowledged before the brokers have marked it so: waits until they have.
    """
    admin, at = app.kafka.admin(), (app.topic("kv"), 0)
    transactions, before = mib * MIB // (KEYS * VALUE), ends(admin, [at])[at]
    producer = app.kafka.producer(None, **{"transactional.id": f"{app.name}-0", "linger.ms": 5})
    producer.init_transactions(30)
    for _ in range(transactions):
        producer.begin_transaction()
        for key in range(KEYS):
            value = os.urandom(VALUE)
            producer.produce(app.topic("kv"), value, b"%d" % key, 0, timestamp=now_ms())
        producer.commit_transaction(30)
    marked = before + transactions * (KEYS + 1)
    until(lambda: ends(admin, [at])[at] == marked, 10, "marked as committed")
