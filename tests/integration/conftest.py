"""A real broker for the whole run, and applications with names of their own."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from state_lib.changelog.admin import _await
from state_lib.changelog.topics import TopicPlan
from state_lib.kafka import Kafka
from state_lib.specs import StoreSpec
from state_lib.stack.broker import LocalBroker
from tests.support.apps import KV, App, app_of
from tests.support.brokers import running_broker
from tests.support.topic import MARKS, Log

_numbers = itertools.count()
MakeApp = Callable[..., App]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """Cleans logs and ends forgotten transactions every moment, so that tests need not wait."""
    extra = {
        "log.cleaner.backoff.ms": "100",
        "log.retention.check.interval.ms": "500",
        "log.initial.task.delay.ms": "500",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    }
    with running_broker(tmp_path_factory.mktemp("broker"), extra=extra) as running:
        yield running


@pytest.fixture(scope="session")
def kafka(broker: LocalBroker) -> Kafka:
    return Kafka({"bootstrap.servers": broker.bootstrap, "log_level": 0})


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A legal name that no other test uses."""
    return re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:60] + f"-{next(_numbers)}"


@pytest.fixture
def make_app(kafka: Kafka, name: str, tmp_path: Path) -> Iterator[MakeApp]:
    """``make_app([specs], outputs=[…])``: topics created, tasks closed at the end."""
    made: list[App] = []

    def make(
        stores: Sequence[StoreSpec] = (KV,), outputs: Sequence[str] = (), partitions: int = 1
    ) -> App:
        topics = [f"{name}-{output}" for output in outputs]
        app = app_of(kafka, f"{name}-{len(made)}", tmp_path, stores, topics, partitions)
        app.create()
        made.append(app)
        return app

    yield make
    for app in made:
        app.close()
    _forget(kafka, name)


def _forget(kafka: Kafka, name: str) -> None:
    """Delete a test's topics: the broker, and whoever lists applications, look at all there are."""
    admin = kafka.admin()
    topics = admin.list_topics(timeout=30).topics
    mine = [t for t in topics if t == name or t.startswith(f"{name}-")]
    for future in admin.delete_topics(mine).values() if mine else ():
        with contextlib.suppress(KafkaException):  # the next test does not depend on it
            future.result()


@pytest.fixture
def log(kafka: Kafka, name: str, request: pytest.FixtureRequest) -> Iterator[Log]:
    config = getattr(request, "param", {"cleanup.policy": "compact"})
    config = {"message.timestamp.after.max.ms": str(2**63 - 1), "retention.ms": "-1"} | config
    new = [NewTopic(name, 1, 1, config=config), NewTopic(name + MARKS, 1, 1)]
    for future in kafka.admin().create_topics(new).values():
        future.result()
    _await(kafka.admin(), [TopicPlan(t.topic, 1) for t in new])
    made = Log(kafka, name)
    yield made
    for writer in made.writers:
        writer.close()
    _forget(kafka, name)
