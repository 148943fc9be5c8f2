"""Reset and delete: what goes, what stays, what refuses, and that a crash can be run again."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import replace

import pytest
from confluent_kafka.admin import NewTopic

from state_lib.apps.catalogue import catalogue, find
from state_lib.apps.hosts import Hosts
from state_lib.apps.removal import Kind, carry_out, plan
from state_lib.changelog.claims import topology_of
from state_lib.changelog.topics import (
    commits_topic,
    plan_topics,
    topology_topic,
)
from state_lib.client.flight import FlightHostClient
from state_lib.config import Settings
from state_lib.driver.claims import check_same_application
from state_lib.drivers.control import Control
from state_lib.drivers.identity import Identity
from state_lib.drivers.look import Looker
from state_lib.errors import (
    ConfigurationError,
    HoldfastError,
    InvalidRequest,
    NotFound,
    Superseded,
    Unauthorized,
)
from state_lib.protocol.positions import Positions
from tests.integration.conftest import MakeApp
from tests.support.apps import KV, TS, App, batch, kv
from tests.support.cluster import PARTITIONS, TOKEN, Cluster, topics
from tests.support.hosts import address, claim, publish, served
from tests.support.waiting import until


def remove(app: App, cluster: Cluster, kind: Kind) -> None:
    carry_out(app.kafka, cluster.hosts, plan(app.kafka, cluster.hosts, kind, app.name))


def test_one_is_reset_while_the_other_commits(
    cluster: Cluster, applications: tuple[App, App]
) -> None:
    first, second = applications
    old, other = cluster.start(first), cluster.start(second)
    for p in range(PARTITIONS):
        cluster.commit(first, old, p, b"old")
    ns: dict[int, list[int]] = {p: [] for p in range(PARTITIONS)}
    failures: list[HoldfastError] = []
    done = threading.Event()

    def keep_committing(partition: int) -> None:
        while not done.is_set():
            try:
                marker = cluster.commit(second, other, partition, b"%d" % len(ns[partition]))
            except HoldfastError as error:
                failures.append(error)
                return
            ns[partition].append(marker.batch_number)

    threads = [threading.Thread(target=keep_committing, args=(p,)) for p in ns]
    for thread in threads:
        thread.start()
    try:
        until(lambda: all(ns.values()))
        kept = topics(first)
        remove(first, cluster, "reset")
        after = {p: len(made) for p, made in ns.items()}
        until(lambda: bool(failures) or all(len(made) > after[p] for p, made in ns.items()))
    finally:
        done.set()
        for thread in threads:
            thread.join(30)
    assert failures == []
    for p, made in ns.items():
        assert made == list(range(1, len(made) + 1)), "not one commit was refused or lost"
        assert cluster.value(second, p) == [b"%d" % (len(made) - 1)]
    gone = {
        f"{first.name}-{what}" for what in ("kv-changelog", "commits", "progress", "dead-letters")
    }
    assert topics(first) == kept - gone
    assert cluster.directories(first) == []
    with pytest.raises(Superseded, match="its reset was asked for"):
        Control(first.kafka, first.name, Identity.of_this_process()).heed(old)
    for p in range(PARTITIONS):
        with pytest.raises(NotFound):
            cluster.commit(first, old, p, b"zombie")
        with pytest.raises(Superseded):
            cluster.client(first, p).claim(first.name, p, old)

    new = cluster.start(first)
    assert new > old
    for p in range(PARTITIONS):
        marker = cluster.client(first, p).marker(first.name, p)
        assert (marker.epoch, marker.batch_number, marker.positions) == (new, 0, Positions())
        assert cluster.value(first, p) == []
        assert cluster.commit(first, new, p, b"new").batch_number == 1
        assert cluster.value(first, p) == [b"new"]


def test_a_reset_application_may_become_another(
    cluster: Cluster, applications: tuple[App, App]
) -> None:
    first, _ = applications
    cluster.start(first)
    with pytest.raises(ConfigurationError):
        check_same_application(first.kafka, replace(first.topology, partitions=2))
    remove(first, cluster, "reset")
    assert find(first.kafka, first.name).state == "reset"
    with pytest.raises(NotFound, match="has not been started since"):
        topology_of(first.kafka, first.name)
    first.topology = replace(first.topology, partitions=2, stores=(TS, KV), outputs=())
    epoch = cluster.start(first)
    assert cluster.commit(first, epoch, 1, b"1").batch_number == 1
    assert find(first.kafka, first.name).state == "stopped"


def test_deleted_and_made_again(cluster: Cluster, applications: tuple[App, App]) -> None:
    first, second = applications
    epoch = cluster.start(first)
    cluster.commit(first, epoch, 0, b"old")
    cluster.start(second)
    mine = {p.name for p in plan_topics(first.topology) if p.owned}
    before = topics(first)
    assert mine <= before
    remove(first, cluster, "delete")
    assert topics(first) == before - mine, "sources, outputs, others' topics stay"
    assert cluster.directories(first) == []
    assert cluster.directories(second)
    with pytest.raises(NotFound) as unknown:
        plan(first.kafka, cluster.hosts, "delete", first.name)
    assert first.name not in unknown.value.details["known"]
    assert second.name in unknown.value.details["known"]
    assert cluster.start(first) == 0, "epochs begin anew"
    assert cluster.value(first, 0) == []
    assert cluster.commit(first, 0, 0, b"new").batch_number == 1


@pytest.mark.parametrize("claims", [1, 2])
def test_a_host_that_was_not_there_meets_the_new_one(make_app: MakeApp, claims: int) -> None:
    """It was left out of the list when its application was deleted; its epoch may recur."""
    app, at = make_app(), address()
    epochs = [publish(app) for _ in range(claims)]
    with served(app, at, TOKEN) as manager, closing(FlightHostClient(at, TOKEN)) as client:
        claim(client, app, epochs[-1])
        old = manager.task(app.name, 0)
        old.commit(batch(old.marker, {"kv": kv(("a", "old"))}))
        nobody = Hosts([], None)
        carry_out(app.kafka, nobody, plan(app.kafka, nobody, "delete", app.name))
        (left,) = [k for k in catalogue(app.kafka, Hosts([at], TOKEN).held()) if k.app == app.name]
        assert (left.state, left.hosts) == ("left on hosts", (at.id,))
        app.create()
        assert publish(app) == 0
        assert claim(client, app, 0).epoch == 0
        assert not old.is_open
        assert manager.task(app.name, 0) is not old
        assert manager.task(app.name, 0).get_many("kv", [b"a"])[1] == [None]
        (kept,) = old.path.parent.parent.glob(f".{app.name}.of-before-*")
        assert (kept / "0" / "CURRENT").exists(), "it may be all that is left"


def test_what_only_hosts_remember_can_be_dropped(make_app: MakeApp) -> None:
    app, at = make_app(), address()
    epoch = publish(app)
    hosts, nobody = Hosts([at], TOKEN), Hosts([], None)
    with served(app, at, TOKEN) as manager, closing(FlightHostClient(at, TOKEN)) as client:
        claim(client, app, epoch)
        with pytest.raises(InvalidRequest, match="keeps"):
            client.forget(app.name, -1)
        carry_out(app.kafka, nobody, plan(app.kafka, nobody, "delete", app.name))
        with pytest.raises(InvalidRequest, match="keeps"):
            client.forget(app.name, 0)
        removal = plan(app.kafka, hosts, "delete", app.name)
        assert removal.goes == ()
        carry_out(app.kafka, hosts, removal)
        assert manager.apps == {}
        assert not (app.root / at.id / app.name).exists()
        with pytest.raises(NotFound):
            plan(app.kafka, hosts, "delete", app.name)


@pytest.mark.parametrize(
    ("kind", "point"),
    [
        ("delete", "removal.noticed"),
        ("delete", "removal.forgotten"),
        ("delete", "removal.topic_deleted"),
        ("reset", "removal.topic_deleted"),
    ],
)
def test_a_crash_in_the_middle_can_be_run_again(
    cluster: Cluster,
    applications: tuple[App, App],
    monkeypatch: pytest.MonkeyPatch,
    kind: Kind,
    point: str,
) -> None:
    first, _ = applications
    cluster.start(first)
    with monkeypatch.context() as armed:
        armed.setenv("HOLDFAST_FAILPOINTS", f"{point}=raise")
        with pytest.raises(Exception, match=point):
            remove(first, cluster, kind)
    assert find(first.kafka, first.name).state == f"{kind} begun"
    for ask in (
        lambda: check_same_application(first.kafka, first.topology),
        lambda: topology_of(first.kafka, first.name),
        lambda: cluster.client(first, 0).claim(first.name, 0, 99),
    ):
        with pytest.raises((ConfigurationError, NotFound), match=f"holdfast app {kind}"):
            ask()
    remove(first, cluster, kind)
    assert commits_topic(first.name) not in topics(first)
    assert (topology_topic(first.name) in topics(first)) == (kind == "reset")
    assert cluster.directories(first) == []
    epoch = cluster.start(first)
    assert cluster.commit(first, epoch, 0, b"1").batch_number == 1


def test_a_claim_meanwhile_ends_the_removal(
    cluster: Cluster, applications: tuple[App, App]
) -> None:
    """The driver looked before the notice and claimed after it."""
    first, _ = applications
    cluster.start(first)
    removal = plan(first.kafka, cluster.hosts, "delete", first.name)
    before = topics(first)

    def claimed(line: str) -> None:
        if line.startswith("host host-2"):
            publish(first)

    with pytest.raises(InvalidRequest, match="claimed while"):
        carry_out(first.kafka, cluster.hosts, removal, claimed)
    assert topics(first) == before


def test_hosts_forget_nothing_that_lives(cluster: Cluster, applications: tuple[App, App]) -> None:
    first, _ = applications
    epoch = cluster.start(first)
    for wrong in (epoch, epoch + 1, -1):
        with pytest.raises(InvalidRequest, match="not a notice"):
            cluster.hosts.forget(first.name, wrong)
    with pytest.raises(HoldfastError):
        cluster.hosts.forget("../x", epoch)
    with pytest.raises(Unauthorized):
        Hosts(cluster.addresses, "wrong").forget(first.name, epoch)
    assert cluster.commit(first, epoch, 0, b"1").batch_number == 1


def test_a_foreign_topic_of_that_name_is_no_application(make_app: MakeApp, name: str) -> None:
    app = make_app()
    for future in (
        app.kafka.admin().create_topics([NewTopic(f"{name}-net-topology", 1, 1)]).values()
    ):
        future.result()
    producer = app.kafka.producer()
    producer.produce(f"{name}-net-topology", b"not ours", key=f"{name}-net".encode())
    assert producer.flush(60) == 0
    assert f"{name}-net" not in [known.app for known in catalogue(app.kafka)]


@pytest.mark.parametrize("kind", ["reset", "delete"])
def test_whoever_watches_follows_through(
    cluster: Cluster, applications: tuple[App, App], kind: Kind
) -> None:
    """A supervisor's long-lived look at an application that goes and comes back."""
    first, _ = applications
    servers = str(first.kafka.properties["bootstrap.servers"])
    looker = Looker(Settings.load(bootstrap_servers=servers), first.name)
    try:
        epoch = cluster.start(first)
        for n in range(3):
            cluster.commit(first, epoch, 0, b"%d" % n)
        until(lambda: looker.look().epoch == epoch)
        remove(first, cluster, kind)
        looker.look()
        epoch = cluster.start(first)
        for p in range(PARTITIONS):
            cluster.commit(first, epoch, p, b"new")
        until(lambda: (looker.look().epoch, looker.look().batch_number) == (epoch, 1), 60)
        assert looker.look().away is None
    finally:
        looker.close()
