"""Claims: what hosts ask Kafka for them, and epochs of a topology topic that was made again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from state_lib.addresses import HostAddress
from state_lib.changelog.claims import newest_claim
from state_lib.changelog.topics import commits_topic, topology_topic
from state_lib.client.flight import FlightHostClient
from state_lib.drivers.control import Control
from state_lib.drivers.identity import Identity
from state_lib.errors import NotFound, Superseded, TopicRecreated
from state_lib.host import learning
from state_lib.kafka import ends
from state_lib.marker import Marker
from state_lib.spark.claims import claim_tasks
from state_lib.spark.epochs import Epoch, claim_all, new_epoch
from tests.integration.conftest import MakeApp
from tests.support.apps import KV, App, app_of, batch, claimed, kv
from tests.support.hosts import address, claim, managed, publish, served
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


def claimed_anew(
    app: App, at: HostAddress, before: Epoch | None = None
) -> tuple[Epoch, list[Marker]]:
    """As a driver does that starts."""
    return claim_all(
        app.kafka, app.name, lambda: publish(app), lambda epoch: taken(app, at, epoch), before
    )


@pytest.mark.parametrize("claims", [1, 4], ids=["the-same-epoch", "a-higher-epoch"])
def test_a_topology_topic_that_was_made_again_begins_with_a_higher_epoch(
    make_app: MakeApp, claims: int
) -> None:
    """With the same epoch its first batches would count as done; with a lower one none could."""
    app, at = make_app(), address()
    old = [published(app) for _ in range(claims)][-1]
    with served(app, at) as manager, closing(FlightHostClient(at, None)) as client:
        taken(app, at, old)
        task = manager.task(app.name, 0)
        first = task.commit(batch(task.marker, {"kv": kv(("a", "1"))}))
        made_again(app, topology_topic(app.name))
        epoch, markers = claimed_anew(app, at)
        assert epoch.number > old.number
        assert [(m.epoch, m.n) for m in markers] == [(epoch.number, 0)]
        assert markers[0].positions == first.positions
        newest = newest_claim(app.kafka, app.name)
        assert newest is not None
        assert newest.epoch == epoch.number

        # The driver of before may live: nothing told it of the new one.
        task = manager.task(app.name, 0)
        with pytest.raises(Superseded):
            task.commit(batch(first, {"kv": kv(("a", "2"))}))
        for topic_id in (old.topic_id, None):
            with pytest.raises((NotFound, Superseded)):
                client.claim(app.name, 0, old.number, topic_id)
        assert task.marker == markers[0]
        assert task.commit(batch(task.marker, {"kv": kv(("b", "1"))})).n == 1
        again, markers = claimed_anew(app, at)
        assert again.number == epoch.number + 1, "and from there they grow as ever"


def test_a_task_says_of_which_topic_its_epoch_is(make_app: MakeApp) -> None:
    """What a driver of an older version is told."""
    app, at = make_app(), address()
    old = [published(app), published(app)][-1]
    with managed(app, at) as manager:
        claim(manager, app, old.number)
        made_again(app, topology_topic(app.name))
        new = published(app)
        with pytest.raises(TopicRecreated) as refused:
            claim(manager, app, new.number)
        assert refused.value.details == {
            "topic": topology_topic(app.name),
            "expected_id": old.topic_id,
            "actual_id": new.topic_id,
            "epoch": new.number,
            "current": old.number,
        }
        for said in (topology_topic(app.name), "epoch 0", "epoch 1", "start the job"):
            assert said in refused.value.message


@pytest.mark.parametrize("old", [0, 7])
def test_markers_of_older_versions_do_not_say_it_and_the_topic_does(
    make_app: MakeApp, old: int
) -> None:
    app, at = make_app(), address()
    task = app.opened(host=at.id)
    task.commit(batch(claimed(task, old), {"kv": kv(("a", "1"))}))
    assert task.marker.claimed_in == ""
    app.close()
    with served(app, at):
        epoch, markers = claimed_anew(app, at)
        assert (epoch.number, markers[0].epoch, markers[0].n) == (old + 1, old + 1, 0)


def test_a_newer_driver_is_not_passed(make_app: MakeApp) -> None:
    """Both claims are in the topic: who claimed later stays."""
    app, at = make_app(), address()
    with served(app, at):
        newer: list[Epoch] = []

        def overtaken(epoch: Epoch) -> list[Marker]:
            newer.append(published(app))
            taken(app, at, newer[0])
            return taken(app, at, epoch)

        with pytest.raises(Superseded, match="another driver"):
            claim_all(app.kafka, app.name, lambda: publish(app), overtaken)
        where = (topology_topic(app.name), 0)
        assert ends(app.kafka.admin(), [where])[where] == newer[0].number + 1


def test_a_process_that_was_frozen_does_not_take_the_application_back(make_app: MakeApp) -> None:
    app, at = make_app(), address()
    frozen, newer = published(app), published(app)
    with served(app, at):
        taken(app, at, newer)
        made_again(app, topology_topic(app.name))
        with pytest.raises(Superseded, match=f"epoch {newer.number}.*epoch {frozen.number}"):
            claimed_anew(app, at, frozen)
        epoch, _ = claimed_anew(app, at, newer)
        assert epoch.number > newer.number, "its own epoch is no other driver's"


def test_a_driver_hears_claims_in_a_topology_topic_that_was_made_again(make_app: MakeApp) -> None:
    app = make_app()
    epochs = [publish(app) for _ in range(3)]
    control = Control(app.kafka, app.name, replace(Identity.of_this_process(), id="of-before"))
    control.begin()
    assert control.heed(epochs[-1]) is None
    made_again(app, topology_topic(app.name))
    assert control.heed(epochs[-1]) is None
    publish(app)
    with pytest.raises(Superseded, match="another driver was started"):
        control.heed(epochs[-1])
