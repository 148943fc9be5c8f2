"""A host that starts learns from Kafka what it does not remember, and is not ready before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from confluent_kafka.admin import NewTopic

from state_lib.apps.hosts import Hosts as AllHosts
from state_lib.apps.removal import Kind, carry_out, plan
from state_lib.changelog import claims
from state_lib.changelog.claims import STREAMING, Notice, newest_claim, tell
from state_lib.changelog.topics import topology_topic
from state_lib.client.query import QueryClient
from state_lib.drivers.hosts import complaints
from state_lib.errors import ConfigurationError, NotFound, Unavailable
from state_lib.host.discovery import Discovery
from state_lib.host.tasks import EVERY, TaskManager
from state_lib.kafka import Kafka
from state_lib.protocol.addresses import HostAddress
from state_lib.protocol.placement import owner_of
from tests.integration.conftest import MakeApp
from tests.support.apps import KV, app_of, batch, digests, kv
from tests.support.brokers import running_broker
from tests.support.host_process import TOKEN, Hosts
from tests.support.hosts import address, claim, managed, publish, served
from tests.support.waiting import until

HEADERS = {"Authorization": f"Bearer {TOKEN}"}


@contextmanager
def discovering(manager: TaskManager, at: HostAddress) -> Iterator[None]:
    found = Discovery(manager, at)
    found.start()
    try:
        yield
    finally:
        found.stop()


def readiness(url: str, **more: Any) -> tuple[int, dict[str, Any]]:
    try:
        answer = httpx.get(f"{url}/readyz", **more)
    except httpx.TransportError:
        return 0, {}
    return answer.status_code, answer.json()


def test_a_host_that_lost_its_disk_is_ready_when_its_tasks_are_back(make_app: MakeApp) -> None:
    app = make_app([replace(KV, key_serde="utf8", value_serde="utf8")])
    hosts = Hosts(app)
    url = hosts.settings.host_addresses[0].http_url
    try:
        hosts.start(publish(app, hosts.settings.host_addresses))
        for n in range(1, 4):
            marker = hosts.commit(n, {b"k%d" % i: b"%d" % n for i in range(200)})
        hosts.lose()
        hosts.armed.write_text("restore.before_build=sleep:2")  # else it may be ready at once
        hosts.launch()  # no driver
        seen: list[dict[str, Any]] = []

        def ready() -> bool:
            status, body = readiness(url, headers=HEADERS)
            seen.append(body)
            return status == 200

        until(ready, 60, "ready")
        with QueryClient(hosts.settings.host_addresses, TOKEN) as client:
            found = {row["key"]: row["value"] for row in client.range(app.name, "kv")}
        assert found == {f"k{i}": "3" for i in range(200)}, "at once"
        missing = {name for body in seen[:-1] for name in body.get("not_ready", {})}
        assert missing, "it said what it waited for"
        assert missing <= {EVERY, f"{app.name}/0"}
        with hosts.client() as flight:
            assert (flight.marker(app.name, 0).epoch, flight.marker(app.name, 0).batch_number) == (
                marker.epoch,
                marker.batch_number,
            )
        assert hosts.commit(4, {b"k7": b"4"}).batch_number == 4, "its driver may go on"
    finally:
        hosts.stop()


def test_readiness_counts_without_the_token_and_names_with_it(make_app: MakeApp) -> None:
    """A disk that takes no new application, as a full one."""
    app = make_app()
    hosts = Hosts(app)
    at = hosts.settings.host_addresses[0]
    publish(app, [at])
    in_the_way = hosts.settings.home / "state" / at.id / app.name
    in_the_way.parent.mkdir(parents=True)
    in_the_way.touch()
    try:
        hosts.launch()
        until(lambda: app.name in readiness(at.http_url, headers=HEADERS)[1].get("not_ready", {}))
        assert readiness(at.http_url) == (
            503,
            {"status": "not ready", "waiting": 1, "not_ready": {}},
        )
        _, body = readiness(at.http_url, headers=HEADERS)
        assert "cannot be remembered" in body["not_ready"][app.name]
        assert "cannot be remembered" in "".join(complaints(hosts.settings, app.name))
        in_the_way.unlink()
        until(lambda: readiness(at.http_url)[0] == 200, 60, "ready by itself")
        with hosts.client() as client:
            assert client.marker(app.name, 0).owner == at.id
    finally:
        hosts.stop()


def test_nobodys_topics_stop_no_host(make_app: MakeApp, kafka: Kafka) -> None:
    app, at = make_app(), address()
    publish(app, [at])
    kinds = ("foreign", "torn", "newer", "odd", "strange", "parts")
    foreign, torn, newer, odd, strange, parts = names = [f"{app.name}-{x}" for x in kinds]
    new = [NewTopic(topology_topic(x), 2 if x == parts else 1, 1) for x in names]
    for future in kafka.admin().create_topics(new, operation_timeout=30).values():
        future.result()
    producer = kafka.producer()
    hosts = {"hosts": [str(at)]}
    for name, value in (
        (torn, b'{"app": "to'),
        (newer, orjson.dumps({"app": newer, "shape": "of tomorrow", "extra": hosts})),
        (foreign, orjson.dumps(app.topology.to_json() | {"extra": hosts})),  # of another name
        (odd, orjson.dumps(replace(app.topology, app=odd, extra={"hosts": 5}).to_json())),
        (strange, orjson.dumps(replace(app.topology, app=strange, extra={"notice": 5}).to_json())),
    ):
        producer.produce(topology_topic(name), value, name.encode())
        producer.produce(topology_topic(name), b"whatever", STREAMING)
    assert producer.flush(30) == 0
    with managed(app, at) as manager, discovering(manager, at):
        until(lambda: not manager.not_ready)
        assert set(manager.apps) == {app.name}
        assert manager.task(app.name, 0).is_open
        with pytest.raises(NotFound):
            manager.task(torn, 0)
    for name in (torn, newer):
        with pytest.raises(ConfigurationError, match=f"offset 0 of topic '{name}-topology'"):
            newest_claim(kafka, name)


@pytest.mark.parametrize("kind", ["reset", "delete"])
def test_what_was_ended_is_not_taken(make_app: MakeApp, kind: Kind) -> None:
    app, at = make_app(), address()
    with served(app, at, TOKEN) as manager:
        claim(manager, app, publish(app, [at]))
        every = AllHosts([at], TOKEN)
        carry_out(app.kafka, every, plan(app.kafka, every, kind, app.name))
    again = app_of(app.kafka, app.name, app.root / "new", [KV])
    with managed(again, at) as manager, discovering(manager, at):
        until(lambda: not manager.not_ready)
        assert manager.apps == {}
    if kind == "reset":
        body = app.topology.to_json()
        begun = {"hosts": [str(at)], "notice": vars(Notice("delete", False, 1, "me"))}
        tell(app.kafka, app.name, app.name.encode(), body | {"extra": begun})
        with managed(again, at) as manager, discovering(manager, at):
            until(lambda: not manager.not_ready)
            assert manager.apps == {}


def test_what_moved_to_other_hosts_is_not_taken(make_app: MakeApp) -> None:
    """Opening a task fences its owner."""
    app, at, other = make_app(), address(), address("host-2")
    moved = replace(address(), id=at.id)  # another machine took its name
    for hosts in ([other], [moved], []):
        publish(app, [at])
        publish(app, hosts)
        with managed(app, at) as manager, discovering(manager, at):
            until(lambda: not manager.not_ready)
            assert manager.apps == {}
    wide = app_of(app.kafka, f"{app.name}-wide", app.root, [KV])
    wide.topology = replace(wide.topology, partitions=4)
    wide.create()
    publish(wide, [at, other])
    with managed(app, at) as manager, discovering(manager, at):  # which thinks it is alone
        until(lambda: not manager.not_ready)
        assert manager.apps == {}
    with managed(app, at, [at, other]) as manager, discovering(manager, at):
        until(lambda: not manager.not_ready)
        mine = [p for p in range(4) if owner_of(wide.name, p, [at, other]) == at]
        assert sorted(manager.tasks) == [(wide.name, p) for p in mine]


@pytest.mark.full
def test_kafka_is_asked_again_until_it_answers(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claims, "ADMIN_TIMEOUT_S", 1.0)
    at = address()
    with running_broker(tmp_path_factory.mktemp("away")) as broker:
        kafka = Kafka({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        app = app_of(kafka, "away", tmp_path, [KV])
        app.create()
        publish(app, [at])
        broker.kill()
        with managed(app, at) as manager, discovering(manager, at):
            until(lambda: "cannot be asked" in manager.not_ready.get(EVERY, ""), 60)
            with pytest.raises(Unavailable, match="not known yet"):
                manager.task(app.name, 0)
            broker.start()
            until(lambda: not manager.not_ready, 120)
            assert manager.task(app.name, 0).is_open


@pytest.mark.parametrize("content", [b'{"app": "ha', b'{"shape": "of tomorrow"}', b"[]", b""])
def test_a_file_that_cannot_be_read_stops_no_other_task(make_app: MakeApp, content: bytes) -> None:
    good, bad, at = make_app(), make_app(), address()
    with managed(good, at) as manager:
        for app in (good, bad):
            claim(manager, app, publish(app))  # which names no host: Kafka gives no help
        task = manager.task(bad.name, 0)
        task.commit(batch(task.marker, {"kv": kv(("a", "1"))}))
    file = good.root / at.id / bad.name / "topology.json"
    whole = file.read_bytes()
    file.write_bytes(content)
    with managed(good, at) as manager, discovering(manager, at):
        until(lambda: set(manager.not_ready) == {bad.name})
        assert manager.task(good.name, 0).is_open
        why = manager.not_ready[bad.name]
        assert str(file) in why
        assert "start the job; or remove" in why
        with pytest.raises(Unavailable, match="start the job; or remove"):
            manager.task(bad.name, 0)
        assert file.read_bytes() == content, "nothing is thrown away"
        file.write_bytes(whole)
        until(lambda: not manager.not_ready)
        assert manager.task(bad.name, 0).get_many("kv", [b"a"])[1] == [b"1"]


def test_a_torn_file_is_mended_by_what_kafka_says(make_app: MakeApp) -> None:
    app, at = make_app(), address()
    epoch = publish(app, [at])
    with managed(app, at) as manager:
        claim(manager, app, epoch)
        task = manager.task(app.name, 0)
        task.commit(batch(task.marker, {"kv": kv(("a", "1"))}))
        before = digests(task)
    file = app.root / at.id / app.name / "topology.json"
    file.write_bytes(b'{"app": "ha')
    with managed(app, at) as manager:
        assert app.name in manager.not_ready
        with discovering(manager, at):
            until(lambda: not manager.not_ready)
            assert digests(manager.task(app.name, 0)) == before
            assert orjson.loads(file.read_bytes())["extra"]["epoch"] == epoch
