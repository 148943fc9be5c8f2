"""``holdfast repair topology``: the topic of claims alone was deleted, and is written anew."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from state_lib.apps.catalogue import catalogue, find
from state_lib.apps.lost_topology import look, write
from state_lib.changelog.claims import newest_claim
from state_lib.changelog.topics import commits_topic, topology_topic
from state_lib.cli._streams import _stream
from state_lib.config import Settings
from state_lib.driver.claims import check_same_application, write_claim
from state_lib.drivers.control import Control
from state_lib.drivers.identity import Identity
from state_lib.drivers.members import living_drivers
from state_lib.drivers.presence import Presence
from state_lib.errors import ConfigurationError, InvalidRequest, Superseded, TopicRecreated
from state_lib.kafka import ends
from tests.support.apps import App
from tests.support.cluster import PARTITIONS, Cli, Cluster, topics
from tests.support.hosts import claim
from tests.support.lost import deleted, made_again
from tests.support.waiting import until

Lose = Callable[..., None]
TASKS = range(PARTITIONS)
MANY = 8
"""So many that each host has one."""
SAID = ("state", "why", "next_step")
"""Of a stream, by `drivers` and `status` alike."""


@pytest.fixture
def app(applications: tuple[App, App]) -> App:
    return applications[0]


@pytest.fixture
def holdfast(app: App, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setenv("HOLDFAST_REPLICATION_FACTOR", "1")
    return Cli("repair", app, cluster, monkeypatch)


@pytest.fixture
def old(app: App, cluster: Cluster) -> int:
    """The epoch of its driver, the third one; every task has two commits."""
    for _ in range(2):
        cluster.start(app)
    epoch = started(app, cluster, code="abc")
    for value in (b"1", b"2"):
        for p in TASKS:
            cluster.commit(app, epoch, p, value)
    return epoch


def started(app: App, cluster: Cluster, code: str | None = None) -> int:
    check_same_application(app.kafka, app.topology)
    epoch = write_claim(app.kafka, app.topology, code=code, hosts=cluster.addresses)
    for p in TASKS:
        claim(cluster.client(app, p), app, epoch, p)
    return epoch


def end_of(app: App) -> int:
    at = (topology_topic(app.name), 0)
    return ends(app.kafka.admin(), [at])[at]


@pytest.mark.parametrize("lose", [deleted, made_again])
def test_the_whole_way(
    app: App, cluster: Cluster, holdfast: Cli, old: int, lose: Lose, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, whole = topology_topic(app.name), topics(app)
    assert "nothing to repair" in holdfast("topology", app.name)
    before = [cluster.client(app, p).marker(app.name, p) for p in TASKS]
    lose(app, topic)
    lost = topics(app)
    with pytest.raises(TopicRecreated, match=f"holdfast repair topology {app.name}"):
        cluster.start(app)
    (seen,) = Cli("drivers", app, cluster, monkeypatch).json(app.name)
    assert seen["state"] == "topology lost"

    assert [one.state for one in catalogue(app.kafka) if one.app == app.name] == ["topology lost"]
    stream = _stream(Settings.load(), find(app.kafka, app.name))
    assert stream["state"] == "topology lost"
    assert stream["next_step"] == f"'holdfast repair topology {app.name}', then start its job"
    assert [seen[name] for name in SAID] == [stream[name] for name in SAID]

    shown = holdfast("topology", app.name, code=1, answer="n\n")
    for said in (topic, f"{app.name}-source", "abc", str(cluster.addresses[0]), "host-"):
        assert said in shown
    assert topics(app) == lost
    assert newest_claim(app.kafka, app.name) is None, "nothing was written"

    assert f"goes on from epoch {old + 1}" in holdfast("topology", app.name, "--yes")
    assert topics(app) == whole
    claimed = newest_claim(app.kafka, app.name)
    assert claimed is not None
    assert (claimed.epoch, claimed.by["code"]) == (old + 1, "abc")
    assert claimed.hosts == tuple(cluster.addresses)
    assert replace(claimed.topology, extra={}) == app.topology
    assert {"epoch", "topic_id"}.isdisjoint(claimed.by)
    end = end_of(app)
    assert "nothing to repair" in holdfast("topology", app.name, "--yes")
    assert end_of(app) == end

    new = started(app, cluster)
    assert new > old
    for p in TASKS:
        marker = cluster.client(app, p).marker(app.name, p)
        assert (marker.epoch, marker.batch_number, marker.positions) == (
            new,
            0,
            before[p].positions,
        )
        assert cluster.value(app, p) == [b"2"]
        assert cluster.commit(app, new, p, b"3").batch_number == 1
        with pytest.raises(Superseded):  # the driver of before may live
            cluster.commit(app, old, p, b"zombie")
        assert cluster.value(app, p) == [b"3"]


def test_what_a_job_declares_is_compared_with_what_was_declared(
    app: App, holdfast: Cli, old: int
) -> None:
    """A source that is left out would vanish from markers, and be counted twice when it is back."""
    deleted(app, topology_topic(app.name))
    other = replace(app.topology, sources=())
    with pytest.raises(TopicRecreated):
        check_same_application(app.kafka, other)
    holdfast("topology", app.name, "--yes")
    with pytest.raises(ConfigurationError, match="does not fit it: it reads"):
        check_same_application(app.kafka, other)
    check_same_application(app.kafka, app.topology)
    assert old < end_of(app)


def test_a_driver_that_was_frozen_meets_the_one_that_had_followed_it(
    app: App, holdfast: Cli, old: int
) -> None:
    """Its claim is in the new topic too, and the epochs of both count on."""
    frozen = Control(app.kafka, app.name, Identity("frozen", "here", 1, "/log"))
    frozen.begin()
    deleted(app, topology_topic(app.name))
    holdfast("topology", app.name, "--yes")
    with pytest.raises(Superseded, match=f"a claim at offset {old + 1}"):
        frozen.heed(old - 1)


def test_not_beside_a_driver_that_lives(
    app: App, cluster: Cluster, holdfast: Cli, old: int
) -> None:
    made_again(app, topology_topic(app.name))
    lost = look(app.kafka, cluster.hosts, app.name)
    assert lost is not None
    assert lost.stands_at == old
    presence = Presence(app.kafka, app.name, Identity("living", "here", 1, "/log"))
    presence.join()
    try:
        until(lambda: living_drivers(app.kafka, app.name), 60)
        said = holdfast("topology", app.name, "--yes", code=1)
        assert "living driver (living)" in said
        assert f"'holdfast stop {app.name}'" in said
        with pytest.raises(InvalidRequest, match="living driver"):
            write(app.kafka, lost, 1, 1)  # it was started since
        assert end_of(app) == 0, "nothing was written"
        assert find(app.kafka, app.name).drivers == ("living",)
    finally:
        presence.leave("stopped", "asked to")
    holdfast("topology", app.name, "--yes")


def test_killed_before_the_claim_it_is_run_again(
    app: App, cluster: Cluster, holdfast: Cli, old: int
) -> None:
    deleted(app, topology_topic(app.name))
    command = [str(Path(sys.executable).with_name("holdfast")), "repair", "topology", app.name]
    armed = {**os.environ, "HOLDFAST_FAILPOINTS": "repair.topology_passed=kill"}
    done = subprocess.run([*command, "-y"], env=armed, check=False, capture_output=True, timeout=90)
    assert done.returncode == -9, done.stderr
    assert newest_claim(app.kafka, app.name) is None
    assert end_of(app) == old + 1
    with pytest.raises(TopicRecreated):
        cluster.start(app)
    said = holdfast.run("topology", app.name, "--yes", "--json").stdout
    loss, end = [orjson.loads(line) for line in said.splitlines()]
    assert (loss["event"], loss["exists"], loss["tasks_stand_at"]) == ("loss", True, old)
    assert (end["event"], end["epoch"]) == ("done", old + 1), "nothing is filled twice"
    assert started(app, cluster) == old + 2


def test_json_asks_nothing(app: App, holdfast: Cli, old: int) -> None:
    assert orjson.loads(holdfast.run("topology", app.name, "--json").stdout)["event"] == "whole"
    deleted(app, topology_topic(app.name))
    loss = orjson.loads(holdfast.run("topology", app.name, "--json", code=1).stdout)
    assert (loss["epoch"], loss["code"], loss["sources"]) == (old, "abc", [f"{app.name}-source"])
    assert topology_topic(app.name) not in topics(app)


def test_a_claim_that_no_task_takes_is_no_repair(app: App, cluster: Cluster, holdfast: Cli) -> None:
    """Of a driver that had looked before: its epoch is the very one of the tasks."""
    assert cluster.start(app) == 0
    for p in TASKS:
        cluster.commit(app, 0, p, b"1")
    made_again(app, topology_topic(app.name))
    assert write_claim(app.kafka, replace(app.topology, sources=("none",))) == 0
    for p in TASKS:
        with pytest.raises(TopicRecreated):
            claim(cluster.client(app, p), app, 0, p)
    assert "goes on from epoch 1" in holdfast("topology", app.name, "--yes")
    epoch = cluster.start(app)
    assert epoch == 2
    for p in TASKS:
        assert cluster.commit(app, epoch, p, b"2").batch_number == 1
        assert cluster.value(app, p) == [b"2"], "acknowledged and applied"


def forgotten(app: App, *hosts: int, cluster: Cluster) -> None:
    for i in hosts:
        cluster.managers[i].applications.drop(app.name, "of another", 0)


@pytest.mark.parametrize("lose", [deleted, made_again])
def test_what_no_host_remembers_can_be_reset(
    app: App, cluster: Cluster, holdfast: Cli, old: int, lose: Lose,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    lose(app, topology_topic(app.name))
    holdfast.hosts([replace(cluster.addresses[0], flight_port=1), cluster.addresses[1]])
    forgotten(app, 1, cluster=cluster)
    said = holdfast("topology", app.name, "--yes", code=1)
    assert "Not asked: host-1 (" in said
    holdfast.hosts(cluster.addresses)
    forgotten(app, 0, cluster=cluster)
    said = holdfast("topology", app.name, "--yes", code=1)
    for words in (
        f"epoch {old}",
        "the hosts remember nothing of it",
        f"'holdfast app reset {app.name}'",
    ):
        assert words in said

    apps = Cli("app", app, cluster, monkeypatch)
    gone = {f"{app.name}-kv-changelog", commits_topic(app.name)}
    assert gone <= topics(app)
    said = apps("reset", app.name, "--yes")
    assert "what it had declared is lost" in said
    assert topics(app).isdisjoint(gone)
    epoch = cluster.start(app)
    for p in TASKS:
        assert cluster.value(app, p) == []
        assert cluster.commit(app, epoch, p, b"new").batch_number == 1


def test_a_reset_that_was_killed_is_run_again(
    app: App, cluster: Cluster, old: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the markers are there, they tell what is left."""
    assert old > 0
    deleted(app, topology_topic(app.name))
    apps = Cli("app", app, cluster, monkeypatch)
    with monkeypatch.context() as armed:
        armed.setenv("HOLDFAST_FAILPOINTS", "removal.topic_deleted=raise")
        apps("reset", app.name, "--yes", code=1)
    assert commits_topic(app.name) in topics(app)
    apps("reset", app.name, "--yes")
    assert f"{app.name}-kv-changelog" not in topics(app)
    epoch = cluster.start(app)
    assert cluster.commit(app, epoch, 0, b"new").batch_number == 1


def test_an_older_claim_than_that_of_the_tasks_is_none(
    app: App, cluster: Cluster, holdfast: Cli
) -> None:
    """The host that was claimed last remembers nothing any more, the other one less."""
    app.topology = replace(app.topology, partitions=MANY)
    assert cluster.start(app) == 0
    mine = next(p for p in range(MANY) if cluster.client(app, p).address == cluster.addresses[0])
    newer = write_claim(app.kafka, app.topology)
    claim(cluster.client(app, mine), app, newer, mine)
    deleted(app, topology_topic(app.name))
    forgotten(app, 0, cluster=cluster)
    said = holdfast("topology", app.name, "--yes", code=1)
    assert f"epoch {newer}, and the hosts remember epoch 0 at most" in said


def test_what_was_deleted_is_not_written_anew(
    app: App, cluster: Cluster, holdfast: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that was away still remembers it."""
    app.topology = replace(app.topology, partitions=MANY)
    cluster.start(app)
    apps = Cli("app", app, cluster, monkeypatch)
    apps.hosts(cluster.addresses[1:])
    apps("delete", app.name, "--yes")
    holdfast.hosts(cluster.addresses)
    said = holdfast("topology", app.name, "--yes", code=1)
    assert f"'holdfast app delete {app.name}'" in said
    assert topology_topic(app.name) not in topics(app)
    assert "no application 'no-such-app'" in holdfast("topology", "no-such-app", code=1)


def test_a_repair_that_waited_writes_nothing_over_a_newer_claim(
    app: App, cluster: Cluster, old: int
) -> None:
    """Another operator was quicker, and a driver with one source more has run since."""
    del old
    deleted(app, topology_topic(app.name))
    first, second = (look(app.kafka, cluster.hosts, app.name) for _ in range(2))
    assert first is not None
    assert second is not None
    write(app.kafka, first, 1, 1)
    more = replace(app.topology, sources=(*app.topology.sources, "more"))
    newer = write_claim(app.kafka, more)
    with pytest.raises(InvalidRequest, match=f"claimed at epoch {newer} since it was looked at"):
        write(app.kafka, second, 1, 1)
    newest = newest_claim(app.kafka, app.name)
    assert newest is not None
    assert newest.topology.sources == more.sources


def test_markers_are_lost_as_well_and_a_driver_starts_first(
    app: App, cluster: Cluster, old: int
) -> None:
    """Its claim is refused: what hosts remember brings declaration and markers back."""
    made_again(app, topology_topic(app.name), commits_topic(app.name))
    with pytest.raises(TopicRecreated, match="holdfast repair topology"):
        started(app, cluster)
    lost = look(app.kafka, cluster.hosts, app.name)
    assert lost is not None
    assert (lost.remembered.epoch, lost.stands_at) == (old, -1)
    assert write(app.kafka, lost, 1, 1) > old
    assert look(app.kafka, cluster.hosts, app.name) is None
