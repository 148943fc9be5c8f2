"""An application whose name holds a word of RocksDB's errors: each of its directories does, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from state_lib.changelog.log import KafkaLog
from state_lib.errors import Unavailable
from state_lib.kafka import Kafka
from state_lib.task import StateTask, TaskContext
from tests.support.apps import KV, App, app_of, batch, claimed, kv
from tests.support.host_process import Hosts
from tests.support.hosts import publish

NAME = "blockchain"


@pytest.fixture
def app(kafka: Kafka, tmp_path: Path) -> Iterator[App]:
    made = app_of(kafka, NAME, tmp_path, [KV])
    made.create()
    yield made
    made.close()
    admin = kafka.admin()
    topics = [t for t in admin.list_topics(timeout=30).topics if t.startswith(f"{NAME}-")]
    for future in admin.delete_topics(topics).values():
        try:
            future.result()
        except KafkaException as error:  # the next test makes its own
            raise AssertionError(topics) from error


def test_a_directory_that_another_process_holds_is_left_alone(app: App) -> None:
    """It is waited for, and never taken for a broken one: that would be set aside under a host."""
    hosts = Hosts(app)
    try:
        hosts.start(publish(app))
        hosts.commit(1, {b"a": b"1"})
        context = TaskContext(
            KafkaLog(app.kafka), "host-1", hosts.settings.home / "state" / "host-1"
        )
        task = StateTask(context, app.topology, 0)
        with pytest.raises(Unavailable, match="another engine has it open") as refused:
            task.open()
        assert "While lock file" in refused.value.message, "RocksDB's own words"
        assert [p.name for p in hosts.state().iterdir() if p.is_dir()] == ["0"]
        assert hosts.commit(2, {b"a": b"2"}).batch_number == 2, "nothing was fenced"
    finally:
        hosts.stop()


def test_a_directory_that_is_broken_is_not_waited_for(app: App) -> None:
    """The word in its path says nothing of a lock: the task is restored from its changelog."""
    task = app.opened()
    task.commit(batch(claimed(task), {"kv": kv(("a", "1"))}))
    task.close()
    (path,) = (p for p in (app.root / "host-1" / NAME).iterdir() if p.is_dir())
    (manifest,) = path.glob("MANIFEST-*")
    manifest.write_bytes(b"\0" * 100)
    task.open()
    assert task.get_many("kv", [b"a"])[1] == [b"1"]
