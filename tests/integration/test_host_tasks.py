"""What a host owns: learned from Kafka, opened, kept, and opened again."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from state_lib.changelog.topics import commits_topic, topology_topic
from state_lib.errors import (
    InvalidName,
    LogLost,
    MissingTopic,
    NotFound,
    NotOwner,
    Superseded,
    TopicRecreated,
    Unavailable,
)
from state_lib.host import openers, remembered, tasks
from state_lib.host.restores import find_loss
from state_lib.host.tasks import TaskManager
from state_lib.kafka import describe
from state_lib.protocol.placement import assign
from state_lib.specs import Topology
from tests.integration.conftest import MakeApp
from tests.support.apps import KV, TS, app_of, batch, kv
from tests.support.hosts import address, claim, managed, publish
from tests.support.lost import made_again
from tests.support.waiting import SLOWNESS, until


def test_a_claim_teaches_the_application(make_app: MakeApp) -> None:
    app = make_app()
    epoch = publish(app)
    with managed(app, address()) as manager:
        with pytest.raises(NotFound) as unknown:
            manager.task("no-such-app", 0)
        assert unknown.value.details["known"] == []
        assert claim(manager, app, epoch).epoch == epoch
        assert manager.app(app.name).stores == app.topology.stores
        assert manager.task(app.name, 0).is_open
        assert manager.not_ready == {}
        with pytest.raises(NotFound):
            manager.task(app.name, 1)


def test_claims_that_were_never_written_are_unknown(make_app: MakeApp) -> None:
    app = make_app()
    epoch = publish(app)
    with managed(app, address()) as manager:
        for absent in (epoch + 1, 99, -1):
            with pytest.raises(NotFound, match="no claim"):
                manager.claim(app.name, 0, absent)
        assert claim(manager, app, epoch).epoch == epoch


def test_names_from_outside_never_become_paths(make_app: MakeApp) -> None:
    app = make_app()
    with managed(app, address()) as manager:
        before = sorted(p.name for p in app.root.rglob("*"))
        for name in ("../x", "a/b", "..", "", "a\0"):
            with pytest.raises(InvalidName):
                manager.claim(name, 0, 0)
            with pytest.raises((InvalidName, NotFound)):
                manager.task(name, 0)
        assert sorted(p.name for p in app.root.rglob("*")) == before


def test_an_older_claim_changes_nothing(make_app: MakeApp) -> None:
    app = make_app()
    old = publish(app)
    app.topology = replace(app.topology, stores=(KV, TS))
    app.create()
    new = publish(app)
    with managed(app, address()) as manager:
        claim(manager, app, new)
        with pytest.raises(Superseded):
            manager.claim(app.name, 0, old)
        assert len(manager.app(app.name).stores) == 2


def test_a_host_that_starts_again_opens_what_it_remembers(make_app: MakeApp) -> None:
    app, where = make_app(), address()
    epoch = publish(app)
    with managed(app, where) as manager:
        claim(manager, app, epoch)
        task = manager.task
        first = task(app.name, 0).commit(batch(task(app.name, 0).marker, {"kv": kv(("a", "1"))}))
    with managed(app, where) as manager:
        until(lambda: bool(manager.tasks) and not manager.not_ready)
        again = manager.task(app.name, 0)
        assert (again.marker.epoch, again.marker.batch_number) == (epoch, first.batch_number)
        assert again.get_many("kv", [b"a"])[1] == [b"1"]


def test_who_asks_while_it_is_remembered_is_told_to_wait(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks takes no lock, and the application is being written down."""
    app, where = make_app(), address()
    epoch = publish(app)
    answers: list[Exception] = []
    manager = TaskManager(app.context(where.id), [where], 60.0)
    remember = remembered.remember

    def asked_meanwhile(folder: Path, topology: Topology) -> None:
        for ask in (manager.task, manager.owned):
            with pytest.raises(NotFound) as unknown:
                ask(app.name, 0)
            answers.append(unknown.value)
        remember(folder, topology)

    monkeypatch.setattr(remembered, "remember", asked_meanwhile)
    manager.start()
    try:
        claim(manager, app, epoch)
        assert len(answers) == 2
        manager.applications.drop(app.name, "", epoch)
        manager.apps[app.name] = app.topology  # as while it is made anew: its tasks are gone
        with pytest.raises(Unavailable, match="given up"):
            manager.task(app.name, 0)
    finally:
        manager.stop()


def test_hosts_split_the_tasks_and_name_each_other(make_app: MakeApp) -> None:
    app = make_app()
    app = app_of(app.kafka, app.name + "-4", app.root, [KV])
    app.topology = replace(app.topology, partitions=4)
    app.create()
    epoch = publish(app)
    hosts = [address("host-1"), address("host-2")]
    owners = assign(app.name, 4, tuple(hosts))
    with managed(app, hosts[0], hosts) as one, managed(app, hosts[1], hosts) as two:
        managers: dict[str, TaskManager] = {"host-1": one, "host-2": two}
        for partition, owner in enumerate(owners):
            claim(managers[owner.id], app, epoch, partition)
            other = two if owner.id == "host-1" else one
            with pytest.raises(NotOwner) as refused:
                other.claim(app.name, partition, epoch)
            assert refused.value.details["owner"] == owner.id
        assert len(one.tasks) == len(two.tasks) == 2


def test_flushes_come_by_themselves(make_app: MakeApp) -> None:
    app = make_app()
    epoch = publish(app)
    with managed(app, address(), flush_s=0.2) as manager:
        claim(manager, app, epoch)
        task = manager.task(app.name, 0)
        marker = task.commit(batch(task.marker, {"kv": kv(("a", "1"))}))
        until(lambda: task._flushed is marker)


def test_a_task_that_closed_itself_is_opened_again(make_app: MakeApp) -> None:
    app = make_app()
    epoch = publish(app)
    with managed(app, address()) as manager:
        claim(manager, app, epoch)
        task = manager.task(app.name, 0)
        task.close()
        with pytest.raises(Unavailable, match="not ready"):
            manager.task(app.name, 0)
        until(lambda: task.is_open)


def test_broken_tasks_do_not_keep_others_closed(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six tasks without a changelog, four openers: they must not wait inside them."""
    monkeypatch.setattr(openers, "_REOPEN_FIRST_S", 0.2)
    healthy = make_app()
    broken = app_of(healthy.kafka, healthy.name + "-broken", healthy.root, [KV])
    broken.topology = replace(broken.topology, partitions=6)
    broken.create()
    for future in broken.kafka.admin().delete_topics([broken.topic("kv")]).values():
        future.result()
    epochs = publish(broken), publish(healthy)
    with managed(healthy, address()) as manager:
        with pytest.raises(Unavailable):
            manager.claim(broken.name, 0, epochs[0])
        until(lambda: len(manager.openers.failures) == 6)
        assert claim(manager, healthy, epochs[1]).epoch == epochs[1]
        assert set(manager.not_ready) == {f"{broken.name}/{p}" for p in range(6)}
        assert broken.topic("kv") in manager.not_ready[f"{broken.name}/0"]
        new = NewTopic(broken.topic("kv"), 6, 1, config={"cleanup.policy": "compact"})
        for future in broken.kafka.admin().create_topics([new]).values():
            future.result()
        until(lambda: not manager.not_ready)


def test_a_task_that_cannot_be_opened_with_new_stores_goes_back_to_the_old_ones(
    make_app: MakeApp,
) -> None:
    app = make_app()
    epoch, declared = publish(app), app.topology
    with managed(app, address()) as manager:
        claim(manager, app, epoch)
        task = manager.task(app.name, 0)
        task.commit(batch(task.marker, {"kv": kv(("a", "1"))}))
        app.topology = replace(declared, stores=(KV, TS))  # without the changelog of the second
        with pytest.raises((MissingTopic, Unavailable)):
            manager.claim(app.name, 0, publish(app))
        until(lambda: app.topic("ts") in manager.not_ready.get(task.name, ""))
        app.topology = declared
        assert claim(manager, app, publish(app)).batch_number == 0
        assert task.get_many("kv", [b"a"])[1] == [b"1"]


def test_a_driver_is_refused_a_task_whose_changelog_was_made_again(make_app: MakeApp) -> None:
    """Waiting would not help, and an empty store would overwrite what the host still has."""
    app = make_app()
    epoch = publish(app)
    with managed(app, address()) as manager:
        claim(manager, app, epoch)
        task = manager.task(app.name, 0)
        task.commit(batch(task.marker, {"kv": kv(("a", "1"))}))
        task.close()
        for future in app.kafka.admin().delete_topics([app.topic("kv")]).values():
            future.result()
        until(lambda: not describe(app.kafka.admin(), [app.topic("kv")]))
        app.create()
        with pytest.raises(LogLost, match="deleted and created again"):
            claim(manager, app, publish(app))
        assert "deleted and created again" in manager.not_ready[task.name]


def test_a_task_that_cannot_be_flushed_does_not_end_the_flushes_of_others(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = make_app()
    bad = app_of(good.kafka, good.name + "-bad", good.root, [KV])
    bad.create()
    epochs = publish(bad), publish(good)
    with managed(good, address(), flush_s=0.2) as manager:
        for app, epoch in zip((bad, good), epochs, strict=True):
            claim(manager, app, epoch)
        asked = []

        def broken() -> None:
            asked.append(1)
            raise OSError(30, "Read-only file system")

        monkeypatch.setattr(manager.task(bad.name, 0), "flush", broken)
        until(lambda: len(asked) > 1)
        task = manager.task(good.name, 0)
        marker = task.commit(batch(task.marker, {"kv": kv(("a", "1"))}))
        until(lambda: task._flushed is marker)
        monkeypatch.undo()


def test_an_application_that_cannot_be_remembered_keeps_no_other_down(make_app: MakeApp) -> None:
    """As on a full disk: what is remembered already needs no write."""
    app, at = make_app(), address()
    epoch = publish(app)
    folder = app.root / at.id
    with managed(app, at) as manager:
        claim(manager, app, epoch)
    (folder / app.name / "topology.tmp").mkdir()  # whoever writes the file fails
    half = folder / "half" / "topology.json"
    half.parent.mkdir()
    half.write_text('{"app": "ha')
    with managed(app, at) as manager:
        assert set(manager.apps) == {app.name}
        until(lambda: set(manager.not_ready) == {"half"})
        newer = publish(app)
        with pytest.raises(Unavailable, match="cannot be remembered in"):
            manager.claim(app.name, 0, newer)
        assert manager.app(app.name).extra["epoch"] == epoch
        (folder / app.name / "topology.tmp").rmdir()
        assert claim(manager, app, newer).epoch == newer


def test_an_application_that_was_made_anew_is_adopted_once(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver claims all partitions at once: the second claim must not retire new tasks."""
    app = make_app()
    epoch = publish(app)
    with managed(app, address()) as manager:
        claim(manager, app, epoch)
        known = manager.app(app.name)
        new = {"topic_id": "of the new topic", "epoch": epoch + 1}
        renewed = replace(known, extra={**known.extra, **new})
        second = threading.Thread(target=manager.applications.adopt, args=[renewed])
        retire, retired = manager.applications._retire, []

        def met_by_another(name: str) -> None:
            retired.append(name)
            if len(retired) == 1:
                second.start()
            retire(name)

        monkeypatch.setattr(manager.applications, "_retire", met_by_another)
        manager.applications.adopt(renewed)
        task = manager.tasks[app.name, 0]
        second.join(30 * SLOWNESS)
        assert retired == [app.name]
        assert manager.tasks[app.name, 0] is task
        until(lambda: task.is_open)


def test_a_claim_waits_with_a_bound_for_another_that_is_looked_up(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka may take longer than whoever claims waits for an answer."""
    app = make_app()
    epoch = publish(app)
    monkeypatch.setattr(tasks, "LOOKED_UP_S", 0.1)
    with managed(app, address()) as manager:
        with ThreadPoolExecutor(1) as another, manager._looking_up(app.name, epoch):
            asked = another.submit(manager.claim, app.name, 0, epoch)
            with pytest.raises(Unavailable, match="being looked up in Kafka"):
                asked.result(30 * SLOWNESS)
        assert claim(manager, app, epoch).epoch == epoch


def test_a_copy_that_a_repair_needs_stays_where_it_is(make_app: MakeApp) -> None:
    """Topology and markers were deleted, the changelogs not: that is no other application."""
    app = make_app()
    epoch = [publish(app), publish(app)][-1]
    with managed(app, address()) as manager:
        claim(manager, app, epoch)
        task = manager.task(app.name, 0)
        task.commit(batch(task.marker, {"kv": kv(("a", "1"))}))
        made_again(app, topology_topic(app.name), commits_topic(app.name))
        with pytest.raises(TopicRecreated, match="holdfast repair topology"):
            claim(manager, app, publish(app))
        assert manager.app(app.name).extra["epoch"] == epoch, "all that is left of the claim"
        with pytest.raises(LogLost):  # as after a repair of the topology topic
            claim(manager, app, [publish(app) for _ in range(2)][-1])
        loss = find_loss(manager, app.name, 0)
        assert (list(loss["topics"]), loss["why_not"]) == ([commits_topic(app.name)], None)
        task = manager.owned(app.name, 0)
        manager.repair(task, None)
        until(lambda: task.is_open)
        assert task.get_many("kv", [b"a"])[1] == [b"1"]
