"""Claims: what hosts ask Kafka for them, and epochs of a topology topic that was made again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from state_lib.addresses import HostAddress
from state_lib.changelog.topics import commits_topic, topology_topic
from state_lib.errors import NotFound
from state_lib.host import learning
from state_lib.marker import Marker
from state_lib.spark.claims import claim_tasks
from state_lib.spark.epochs import Epoch, new_epoch
from tests.integration.conftest import MakeApp
from tests.support.apps import KV, App, app_of, batch, kv
from tests.support.hosts import address, managed, publish, served
from tests.support.lost import made_again


def wide(app: App, partitions: int = 6) -> App:
    made = app_of(app.kafka, f"{app.name}-wide", app.root, [KV])
    made.topology = replace(made.topology, partitions=partitions)
    made.create()
    return made


def published(app: App) -> Epoch:
    return new_epoch(app.kafka, app.name, lambda: publish(app))


def taken(app: App, at: HostAddress, epoch: Epoch) -> list[Marker]:
    """As a driver does, all tasks at once."""
    return claim_tasks(app.topology, epoch, (at,), None, 60.0, lambda: False)


def counted(calls: list[str], function: Callable[..., Any]) -> Callable[..., Any]:
    def called(*arguments: Any) -> Any:
        calls.append(function.__name__)
        return function(*arguments)

    return called


def test_the_topology_topic_is_looked_at_once_for_all_tasks_of_a_claim(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, at = wide(make_app()), address()
    looks: list[str] = []
    for name in ("describe", "newest_claim"):
        monkeypatch.setattr(learning, name, counted(looks, getattr(learning, name)))
    with served(app, at) as manager:
        first = published(app)
        assert {m.epoch for m in taken(app, at, first)} == {first.number}
        assert looks == ["newest_claim"], "the first one learns for all"
        task = manager.task(app.name, 3)
        task.commit(batch(task.marker, {"kv": kv(("a", "1"))}))
        assert taken(app, at, first)[3].n == 1
        assert looks == ["newest_claim"]

        made_again(app, topology_topic(app.name), commits_topic(app.name), app.topic("kv"))
        second = published(app)
        assert second.number == first.number
        assert {m.n for m in taken(app, at, second)} == {0}, "the new application's own tasks"
        assert looks == ["newest_claim"] * 2


def test_a_claim_in_a_topic_that_was_deleted_takes_no_task_of_the_new_one(
    make_app: MakeApp,
) -> None:
    """Its driver waited for a host meanwhile; another one has the same epoch by now."""
    app, at = make_app(), address()
    of_before = published(app)
    made_again(app, topology_topic(app.name))
    again = published(app)
    assert again.number == of_before.number
    with managed(app, at) as manager, pytest.raises(NotFound, match="was deleted since"):
        manager.claim(app.name, 0, of_before.number, of_before.topic_id)
    with served(app, at):
        taken(app, at, again)
