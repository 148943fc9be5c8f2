"""Any host answers for any key: it asks the owner."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx
import pytest

from state_lib.client.http import encoded
from state_lib.client.query import QueryClient
from state_lib.host.http.owners import FORWARDED
from state_lib.kafka import Kafka
from state_lib.keys import partition_for
from state_lib.protocol.placement import owner_of
from state_lib.specs import StoreSpec
from tests.integration.conftest import MakeApp
from tests.support import host_process
from tests.support.host_process import Hosts
from tests.support.hosts import publish
from tests.support.queried import NOON, NUMBERS, TOKEN, WORDS, Cluster, ask, running
from tests.support.waiting import until

APP = "any.app"
STORES = f"/v1/apps/{APP}/stores"
AUTHORIZED = {b"Authorization": f"Bearer {TOKEN}".encode()}


@pytest.fixture(scope="module")
def cluster(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three tasks on four hosts: one has none, and does not know the application."""
    with running(kafka, tmp_path_factory.mktemp("hosts"), APP, 4) as made:
        yield made


def test_each_key_is_answered_alike_by_each_host(cluster: Cluster) -> None:
    idle = [h.id for h in cluster.hosts if APP not in cluster.managers[h.id].apps]
    assert len(idle) == 1
    paths = [f"words/keys/{encoded(word)}" for word in WORDS]
    paths += [f"numbers/keys/{number}" for number in NUMBERS]
    for path in paths:
        first, *others = (ask(host.http_url, f"{STORES}/{path}") for host in cluster.hosts)
        assert first["position"][first["task"]]["batch_number"] == 1
        assert others == [first] * 3, path


def test_windows_of_a_key_are_paged_alike_by_each_host(cluster: Cluster) -> None:
    for host in cluster.hosts:
        path = f"{STORES}/hours/windows/k"
        query: dict[str, Any] = {"from": "2023-11-14T20:30:00Z", "limit": 2}
        page = ask(host.http_url, path, **query)
        assert len(page["entries"]) == 2
        rest = ask(host.http_url, path, **query, cursor=page["cursor"])
        starts = [row["window_start"] for row in page["entries"] + rest["entries"]]
        assert starts[:3] == [NOON - 3_600_000, NOON, NOON + 3_600_000]
        assert page["position"].keys() == rest["position"].keys()


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("words/keys/nosuch", 404, "not-found"),
        ("numbers/keys/seven", 400, "invalid-request"),
        ("hours/keys/k", 400, "invalid-request"),
        ("nosuch/keys/a", 404, "not-found"),
        ("hours/windows/k?from=yesterday", 400, "invalid-request"),
    ],
)
def test_errors_are_alike_on_each_host(cluster: Cluster, path: str, status: int, code: str) -> None:
    first, *others = (ask(host.http_url, f"{STORES}/{path}", status) for host in cluster.hosts)
    assert first["code"] == code
    assert others == [first] * 3


def test_what_nobody_knows_is_404_on_each_host(cluster: Cluster) -> None:
    for host in cluster.hosts:
        body = ask(host.http_url, "/v1/apps/nosuch/stores/words/keys/a", 404)
        assert body["details"]["app"] == "nosuch"


def test_a_client_that_knows_one_host_finds_every_key(cluster: Cluster) -> None:
    for host in cluster.hosts:
        if APP not in cluster.managers[host.id].apps:
            continue  # lists are each host's own
        with QueryClient([host], TOKEN) as client:
            for n, word in enumerate(WORDS):
                found = client.get(APP, "words", word)
                assert found is not None
                assert found["value"]["n"] == n
            assert client.get(APP, "words", "nosuch") is None
            assert len(list(client.windows(APP, "hours", "other"))) == 6


def test_a_request_is_passed_on_once(cluster: Cluster) -> None:
    owner = cluster.url_of("words", "a")
    for host in cluster.hosts:
        answer = httpx.get(
            f"{host.http_url}{STORES}/words/keys/a",
            headers={**AUTHORIZED, FORWARDED.encode(): b"h9"},
        )
        if host.http_url == owner:
            assert answer.status_code == 200
        elif APP in cluster.managers[host.id].apps:
            assert answer.status_code == 421
            assert answer.json()["code"] == "not-owner"
            assert answer.json()["details"]["url"] == owner
        else:
            assert answer.status_code == 404


def is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz").status_code == 200
    except httpx.TransportError:
        return False


def test_a_killed_owner_is_named_and_its_keys_come_back_with_it(make_app: MakeApp) -> None:
    """Three processes, three tasks: each key from each host; then without one of them."""
    app = make_app([StoreSpec("kv", key_serde="utf8", value_serde="utf8")], partitions=3)
    hosts, keys = Hosts(app, 3), [f"key-{i}" for i in range(24)]
    addresses = hosts.settings.host_addresses
    owners = {key: owner_of(app.name, partition_for(key.encode(), 3), addresses).id for key in keys}
    assert len(set(owners.values())) == 3

    def answer(at: str, key: str) -> httpx.Response:
        return httpx.get(
            f"{at}/v1/apps/{app.name}/stores/kv/keys/{key}",
            headers={"Authorization": f"Bearer {host_process.TOKEN}"},
        )

    try:
        hosts.start(publish(app, addresses))
        for partition in range(3):
            mine = [k.encode() for k in keys if partition_for(k.encode(), 3) == partition]
            hosts.commit(1, {key: key for key in mine}, partition)
        for host in addresses:
            until(partial(is_ready, host.http_url), 60, "ready")
            assert [answer(host.http_url, key).json()["value"] for key in keys] == keys
        killed, *others = addresses
        hosts.processes[killed.id].kill()
        hosts.processes[killed.id].wait()
        for host in others:
            for key in keys:
                found = answer(host.http_url, key)
                if owners[key] != killed.id:
                    assert found.json()["value"] == key, "of hosts that are there"
                    continue
                assert found.status_code == 503
                assert int(found.headers["Retry-After"]) > 0
                body = found.json()
                assert body["code"] == "unavailable"
                assert body["details"]["owner"] == killed.id
                assert killed.http_url in body["message"]
        hosts.launch()
        lost = next(key for key in keys if owners[key] == killed.id)
        until(lambda: answer(others[0].http_url, lost).status_code == 200, 60, "back")
        assert [answer(others[1].http_url, key).json()["value"] for key in keys] == keys
    finally:
        hosts.stop()
