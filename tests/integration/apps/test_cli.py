"""`holdfast app` against real brokers and hosts."""

from __future__ import annotations

import json
import threading

import pytest

from state_lib.apps.catalogue import find
from state_lib.changelog.claims import newest_claim
from state_lib.changelog.topics import (
    topology_topic,
)
from state_lib.drivers.control import Control
from state_lib.drivers.identity import Identity
from state_lib.drivers.members import living_drivers
from state_lib.drivers.presence import Presence
from tests.support.apps import App
from tests.support.cluster import PARTITIONS, TOKEN, Cli, Cluster, topics
from tests.support.hosts import address
from tests.support.waiting import until

DRIVER = Identity("driver-7", "somewhere", 7)


@pytest.fixture
def holdfast(
    cluster: Cluster, applications: tuple[App, App], monkeypatch: pytest.MonkeyPatch
) -> Cli:
    return Cli("app", applications[0], cluster, monkeypatch)


def test_the_command_line(cluster: Cluster, applications: tuple[App, App], holdfast: Cli) -> None:
    first, second = applications
    epoch = cluster.start(first)
    for value in (b"1", b"2"):
        cluster.commit(first, epoch, 0, value)
    cluster.start(second)

    found = {one["app"]: one for one in json.loads(holdfast("list", "--json"))}
    assert {first.name, second.name} <= found.keys()
    assert found[first.name]["stores"] == ["kv"]
    assert found[first.name]["hosts"] == ["host-1", "host-2"]
    assert second.name in holdfast("list")
    about = json.loads(holdfast("describe", first.name, "--json"))
    assert (about["state"], about["epoch"]) == ("stopped", epoch)
    sizes = {t["topic"]: t for t in about["topics"]}
    assert sizes[first.topic("kv")]["records"] >= 2
    assert sizes[first.topic("kv")]["bytes"] > 0
    assert sizes[first.topic("kv")]["partitions"] == PARTITIONS
    tasks = sorted(t["partition"] for h in about["hosts"] for t in h["tasks"])
    assert tasks == list(range(PARTITIONS))
    assert first.topic("kv") in holdfast("describe", first.name)

    before = topics(first)
    shown = holdfast("reset", first.name, answer="n\n", code=1)
    out = first.topology.outputs[0].topic
    source = first.topology.sources[0]
    goes, stays = shown.split("stays")
    assert first.topic("kv") in goes
    assert str(cluster.root / "host-1" / first.name) in goes
    assert out in stays
    assert source in stays
    assert "its readers will see every change twice" in stays
    assert topics(first) == before, "No is no"
    assert "add --yes" in holdfast("reset", first.name, "--json", code=2)
    holdfast("reset", first.name, answer="y\n")
    assert first.topic("kv") not in topics(first)
    assert "reset" in holdfast("list")
    done = json.loads(holdfast("delete", first.name, "--yes", "--json"))
    assert [t["topic"] for t in done["deleted_topics"]] == [topology_topic(first.name)]
    assert first.name not in [one["app"] for one in json.loads(holdfast("list", "--json"))]
    assert {out, source} <= topics(first)


def test_refusals(cluster: Cluster, applications: tuple[App, App], holdfast: Cli) -> None:
    first, second = applications
    cluster.start(first)
    cluster.start(second)
    before = topics(first)
    for command in ("describe", "reset", "delete"):
        unknown = holdfast(command, "no-such-app", code=1)
        assert second.name in unknown
        assert "Error: application name '../x' is not usable" in holdfast(command, "../x", code=1)
    holdfast.token("wrong")
    for words in (("list",), ("describe", first.name), ("delete", first.name, "--yes")):
        assert "a bearer token is required" in holdfast(*words, code=1)
    holdfast.token(TOKEN)
    holdfast.hosts([*cluster.addresses, address("host-3")])
    away = holdfast("delete", first.name, "--yes", code=1)
    assert "host 'host-3' must let go" in away
    assert "take it out of HOLDFAST_HOSTS" in away
    assert "host-3" in holdfast("list"), "looking goes on"
    assert topics(first) == before
    claim = newest_claim(first.kafka, first.name)
    assert claim is not None
    assert claim.notice is None


def test_a_living_driver_is_not_pulled_from_under(
    cluster: Cluster, applications: tuple[App, App], holdfast: Cli
) -> None:
    first, _ = applications
    control, presence = (
        Control(first.kafka, first.name, DRIVER),
        Presence(first.kafka, first.name, DRIVER),
    )
    control.begin()
    epoch = cluster.start(first)
    presence.join()
    until(lambda: bool(living_drivers(first.kafka, first.name)))
    assert find(first.kafka, first.name).state == "running"
    for kind in ("reset", "delete"):
        refused = holdfast(kind, first.name, "--yes", code=1)
        assert "driver-7" in refused
        assert "stop its job" in refused
    assert control.heed(epoch) is None

    def obey() -> None:
        until(lambda: control.heed(epoch) is not None)
        presence.leave("stopped", "it was asked to")

    driver = threading.Thread(target=obey)
    driver.start()
    assert "stopped: driver-7" in holdfast("reset", first.name, "--yes", "--stop")
    driver.join(60)
    assert "reset of" in str(control.stop)
    assert find(first.kafka, first.name).state == "reset"


def test_kafka_away_is_said(holdfast: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("state_lib.changelog.claims.ADMIN_TIMEOUT_S", 1.0)
    monkeypatch.setenv("HOLDFAST_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    assert "Kafka at 127.0.0.1:1 did not list topics" in holdfast("list", code=1)
