"""Claims: what hosts ask Kafka for them, and epochs of a topology topic that was made again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from state_lib.changelog.claims import STOP, tell
from state_lib.changelog.topics import commits_topic, topology_topic
from state_lib.driver.claims import Claimant, check_same_application, write_claim
from state_lib.driver.epochs import Epoch, claim_all, new_epoch, topology_id
from state_lib.drivers.control import Control
from state_lib.drivers.identity import Identity
from state_lib.errors import NotFound, Superseded, TopicRecreated, Unavailable
from state_lib.host import learning
from state_lib.kafka import describe, ends
from state_lib.protocol.addresses import HostAddress
from state_lib.protocol.marker import Marker
from state_lib.task import claiming
from tests.integration.conftest import MakeApp
from tests.support.apps import KV, App, app_of, batch, claimed, kv
from tests.support.hosts import address, claim, managed, publish, served
from tests.support.lost import deleted, made_again
from tests.support.waiting import until


def wide(app: App, partitions: int = 6) -> App:
    made = app_of(app.kafka, f"{app.name}-wide", app.root, [KV])
    made.topology = replace(made.topology, partitions=partitions)
    made.create()
    return made


def published(app: App) -> Epoch:
    return new_epoch(app.kafka, app.name, lambda: publish(app), topology_id(app.kafka, app.name))


def taken(app: App, at: HostAddress, epoch: Epoch) -> list[Marker]:
    """As a driver does, all tasks at once."""
    return Claimant(app.topology, epoch, (at,), None, lambda: False).all(60.0, lambda _: {})


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
        assert taken(app, at, first)[3].batch_number == 1
        assert looks == ["newest_claim"]

        made_again(app, topology_topic(app.name), commits_topic(app.name), app.topic("kv"))
        second = published(app)
        assert second.number == first.number
        assert {m.batch_number for m in taken(app, at, second)} == {0}, (
            "the new application's own tasks"
        )
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


def claimed_anew(app: App, at: HostAddress) -> tuple[Epoch, list[Marker]]:
    """As a driver does that has looked before the topology topic was made again."""
    there = topology_id(app.kafka, app.name)
    return claim_all(app.kafka, app.name, lambda: publish(app), lambda e: taken(app, at, e), there)


def end_of(app: App) -> int:
    where = (topology_topic(app.name), 0)
    return ends(app.kafka.admin(), [where])[where]


@pytest.mark.parametrize("claims", [1, 4], ids=["epoch-0", "epoch-3"])
@pytest.mark.parametrize("lose", [deleted, made_again])
def test_a_lost_topology_topic_is_refused_before_anything_is_written(
    make_app: MakeApp, lose: Callable[..., None], claims: int
) -> None:
    """A job that differs from what was declared would not be noticed."""
    app, at = make_app(), address()
    topic = topology_topic(app.name)
    check_same_application(app.kafka, app.topology)
    old = [published(app) for _ in range(claims)][-1]
    check_same_application(app.kafka, app.topology)
    with served(app, at):
        taken(app, at, old)
    lose(app, topic)
    other = replace(app.topology, sources=(), partitions=7)
    for topology in (app.topology, other):
        with pytest.raises(TopicRecreated) as refused:
            check_same_application(app.kafka, topology)
    there = describe(app.kafka.admin(), [topic])
    assert refused.value.details == {
        "topic": topic,
        "expected_id": old.topic_id,
        "actual_id": there[topic].id if there else "",
        "current": old.number,
    }
    for said in (topic, f"epoch {old.number}", f"holdfast repair topology {app.name}"):
        assert said in refused.value.message
    assert bool(there) == (lose is made_again)
    assert not there or end_of(app) == 0


def test_a_claim_that_was_refused_is_none_for_the_next_start(make_app: MakeApp) -> None:
    """What it declares was compared with nothing, and its epochs would come to the tasks' own."""
    app, at = make_app(), address()
    old = [published(app) for _ in range(2)][-1]
    with served(app, at):
        taken(app, at, old)
        made_again(app, topology_topic(app.name))
        for refused in range(3):
            with pytest.raises(TopicRecreated, match="holdfast repair topology"):
                check_same_application(app.kafka, replace(app.topology, sources=()))
            assert publish(app) == refused, "as a driver that had looked before"


def test_a_claim_that_comes_while_markers_are_looked_at_counts(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, at = make_app(), address()
    publish(app)
    looks: list[str] = []
    standing = claiming.standing
    look = counted(looks, standing)
    with served(app, at):

        def overtaken(*arguments: Any) -> list[Marker]:
            if not looks:
                taken(app, at, published(app))
                until(lambda: all(m.epoch == 1 for m in standing(*arguments)))
            return list(look(*arguments))

        monkeypatch.setattr(claiming, "standing", overtaken)
        found = claiming.claim_or_none(app.kafka, app.name)
    assert found is not None
    assert (found.epoch, looks) == (1, ["standing"] * 2)


def test_nothing_is_claimed_in_another_topic_than_was_looked_at(make_app: MakeApp) -> None:
    app = make_app()
    looked_at = published(app).topic_id
    made_again(app, topology_topic(app.name))
    with pytest.raises(Unavailable, match="deleted and created again since its last claim"):
        new_epoch(app.kafka, app.name, lambda: publish(app), looked_at)
    assert end_of(app) == 0


def test_a_driver_ends_when_its_topology_topic_is_gone_for_a_while(
    of_before: tuple[App, Control], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing could be said to it any more; a broker that starts may miss it for a moment."""
    app, control = of_before
    deleted(app, topology_topic(app.name))
    with pytest.raises(Unavailable, match="it is looked at again"):
        control.heed(2)
    app.create()
    assert control.heed(2) is None
    monkeypatch.setattr("state_lib.drivers.control.GONE_S", 0.2)
    deleted(app, topology_topic(app.name))
    with pytest.raises(Unavailable):
        control.heed(2)
    time.sleep(0.3)
    with pytest.raises(TopicRecreated, match=f"holdfast repair topology {app.name}"):
        control.heed(2)


@pytest.mark.parametrize("claims", [1, 4], ids=["the-same-epoch", "a-lower-epoch"])
def test_no_task_is_taken_from_a_topology_topic_that_was_made_again(
    make_app: MakeApp, claims: int
) -> None:
    """It was deleted since its driver looked. With the same epoch its batches would be lost."""
    app, at = make_app(), address()
    old = [published(app) for _ in range(claims)][-1]
    with served(app, at) as manager:
        taken(app, at, old)
        task = manager.task(app.name, 0)
        before = task.commit(batch(task.marker, {"kv": kv(("a", "1"))}))
        made_again(app, topology_topic(app.name))
        with pytest.raises(TopicRecreated, match="holdfast repair topology") as refused:
            claimed_anew(app, at)
        assert (refused.value.details["epoch"], refused.value.details["current"]) == (0, old.number)
        assert manager.task(app.name, 0) is task
        assert task.marker == before
        assert manager.app(app.name).extra["epoch"] == old.number, "all that is left of the claim"
        assert manager.app(app.name).extra["topic_id"] == old.topic_id


def test_of_two_that_claim_in_a_topic_that_was_made_again_the_older_is_superseded(
    make_app: MakeApp,
) -> None:
    app, at = make_app(), address()
    old = [published(app) for _ in range(4)][-1]
    with served(app, at):
        taken(app, at, old)
        made_again(app, topology_topic(app.name))

        def overtaken(epoch: Epoch) -> list[Marker]:
            publish(app)
            return taken(app, at, epoch)

        with pytest.raises(Superseded, match="a claim at offset 1: another driver"):
            claim_all(
                app.kafka,
                app.name,
                lambda: publish(app),
                overtaken,
                topology_id(app.kafka, app.name),
            )


def test_a_task_says_of_which_topic_its_epoch_is(make_app: MakeApp) -> None:
    """What a driver of an older version is told, by a host that had forgotten the application."""
    app, at = make_app(), address()
    old = [published(app), published(app)][-1]
    with managed(app, at) as manager:
        claim(manager, app, old.number)
        manager.apps.pop(app.name)
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


@pytest.mark.parametrize(("old", "error"), [(0, TopicRecreated), (7, Superseded)])
def test_markers_of_older_versions_do_not_say_it(
    make_app: MakeApp, old: int, error: type[Exception]
) -> None:
    """An equal epoch that has commits already is another driver's."""
    app, at = make_app(), address()
    task = app.opened(host=at.id)
    task.commit(batch(claimed(task, old), {"kv": kv(("a", "1"))}))
    assert task.marker.claimed_in == ""
    app.close()
    with pytest.raises(TopicRecreated, match=f"epoch {old}"):
        check_same_application(app.kafka, app.topology)
    with served(app, at), pytest.raises(error):
        claimed_anew(app, at)


def test_an_older_driver_is_superseded(make_app: MakeApp) -> None:
    """Both claims are in the topic: who claimed later stays."""
    app, at = make_app(), address()
    with served(app, at):

        def overtaken(epoch: Epoch) -> list[Marker]:
            taken(app, at, published(app))
            return taken(app, at, epoch)

        with pytest.raises(Superseded, match="another driver"):
            claim_all(
                app.kafka,
                app.name,
                lambda: publish(app),
                overtaken,
                topology_id(app.kafka, app.name),
            )


@pytest.fixture
def of_before(make_app: MakeApp) -> tuple[App, Control]:
    """A driver that listens, after three claims that are not its own."""
    app = make_app()
    for _ in range(3):
        publish(app)
    control = Control(app.kafka, app.name, replace(Identity.of_this_process(), id="of-before"))
    control.begin()
    assert control.heed(2) is None
    return app, control


@pytest.mark.parametrize("longer", [0, 5], ids=["shorter", "longer-than-before"])
def test_a_driver_hears_claims_in_a_topology_topic_that_was_made_again(
    of_before: tuple[App, Control], longer: int
) -> None:
    app, control = of_before
    made_again(app, topology_topic(app.name))
    publish(app)
    for _ in range(longer):
        tell(app.kafka, app.name, STOP, {"why": "", "at": 1})
    for _ in range(2):
        with pytest.raises(Superseded, match="a claim at offset 0: another driver was started"):
            control.heed(2)


def test_an_empty_topology_topic_ends_no_driver(of_before: tuple[App, Control]) -> None:
    app, control = of_before
    made_again(app, topology_topic(app.name))
    assert control.heed(2) is None
    publish(app)
    with pytest.raises(Superseded):
        control.heed(2)


def test_a_tail_that_was_cut_makes_no_older_claim_a_rival(of_before: tuple[App, Control]) -> None:
    """As after an unclean election, which brokers do not do on request: it had read more."""
    app, control = of_before
    control._at = end_of(app) + 5
    assert control.heed(2) is None
    assert control.heed(2) is None
    newer = publish(app)
    with pytest.raises(Superseded, match=f"offset {newer}"):
        control.heed(2)


def test_after_its_own_claim_a_driver_compares_epochs_again(
    of_before: tuple[App, Control],
) -> None:
    app, control = of_before
    ours = replace(Identity.of_this_process(), id="of-before")
    made_again(app, topology_topic(app.name))
    publish(app)
    epoch = write_claim(app.kafka, app.topology, ours)
    assert control.heed(epoch) is None, "what came before its own is overridden"
    assert control.heed(epoch) is None
    write_claim(app.kafka, app.topology, ours)
    assert control.heed(epoch + 5) is None
    publish(app)
    assert control.heed(epoch + 5) is None, "an older claim is no rival any more"
    newer = [publish(app) for _ in range(4)][-1]
    assert newer > epoch + 5
    with pytest.raises(Superseded):
        control.heed(epoch + 5)
