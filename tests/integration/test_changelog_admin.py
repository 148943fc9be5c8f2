"""Topics on a real broker: made right, refused if wrong, never altered."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import NewTopic

from state_lib.changelog.admin import _await, ensure_topics, topic_configs
from state_lib.changelog.topics import TopicPlan, plan_topics
from state_lib.errors import ChangelogUnsafe
from state_lib.kafka import Kafka, describe
from tests.integration.conftest import MakeApp
from tests.support.apps import HOUR, KV, TS, WIN, App, app_of


def create(kafka: Kafka, topic: str, partitions: int = 1, **config: str) -> None:
    dotted = {k.replace("_", "."): v for k, v in config.items()}
    new = NewTopic(topic, partitions, 1, config=dotted)
    for future in kafka.admin().create_topics([new]).values():
        future.result()
    _await(kafka.admin(), [TopicPlan(topic, partitions)])


@pytest.fixture
def app(kafka: Kafka, name: str, tmp_path: object) -> App:
    return app_of(kafka, name, tmp_path, [KV, WIN], [f"{name}-out"])  # type: ignore[arg-type]


def everything(app: App) -> dict[str, dict[str, str]]:
    names = [p.name for p in plan_topics(app.topology)]
    return topic_configs(app.kafka.admin(), describe(app.kafka.admin(), names))


def test_what_is_missing_is_made_as_planned(app: App) -> None:
    facts = app.create()
    configs = everything(app)
    for plan in plan_topics(app.topology):
        assert facts[plan.name].partitions == plan.partitions
        assert plan.config.items() <= configs[plan.name].items()
        assert configs[plan.name]["min.insync.replicas"] == "1"
    assert app.create() == facts, "a second start finds them and makes nothing"


def test_a_topic_that_exists_is_never_altered(app: App) -> None:
    create(app.kafka, app.topic("win"), cleanup_policy="compact", retention_ms=str(99 * HOUR))
    create(app.kafka, f"{app.name}-out", cleanup_policy="compact", segment_ms="12345")
    before = everything(app)
    app.create()
    assert {t: c for t, c in everything(app).items() if t in before} == before


@pytest.mark.parametrize(
    ("store", "partitions", "config", "key", "seen"),
    [
        ("kv", 2, {"cleanup_policy": "compact"}, "partitions", "2"),
        ("kv", 1, {"cleanup_policy": "delete"}, "cleanup.policy", "delete"),
        ("win", 1, {"cleanup_policy": "compact,delete", "retention_ms": "1000"},
         "retention.ms", "1000"),
        ("win", 1, {"cleanup_policy": "compact,delete", "retention_bytes": "1000000"},
         "retention.bytes", "1000000"),
        ("kv", 1, {"cleanup_policy": "compact", "message_timestamp_type": "LogAppendTime"},
         "message.timestamp.type", "LogAppendTime"),
    ],
)  # fmt: skip
def test_an_unsafe_changelog_is_refused_and_left_alone(
    app: App, store: str, partitions: int, config: dict[str, str], key: str, seen: str
) -> None:
    create(app.kafka, app.topic(store), partitions, **config)
    before = everything(app)[app.topic(store)]
    with pytest.raises(ChangelogUnsafe) as refused:
        app.create()
    details = refused.value.details
    assert (details["topic"], details["key"], details["seen"]) == (app.topic(store), key, seen)
    assert details["needed"] in refused.value.message
    assert everything(app)[app.topic(store)] == before


def test_an_output_that_deletes_by_event_time_is_refused(app: App) -> None:
    create(app.kafka, f"{app.name}-out", retention_ms="604800000")
    with pytest.raises(ChangelogUnsafe, match=r"retention\.ms"):
        app.create()


def test_another_replication_factor_is_tolerated(make_app: MakeApp) -> None:
    app = make_app([TS])
    facts = ensure_topics(app.kafka.admin(), plan_topics(app.topology), 3, 2)
    assert {f.replication for f in facts.values()} == {1}
