"""How hosts ask each other for keys, without a broker: that a task is not open is an answer."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from state_lib.changelog.log import KafkaLog
from state_lib.host.http import HttpServer, owners
from state_lib.host.tasks import TaskManager
from state_lib.kafka import Kafka
from state_lib.keys import partition_for
from state_lib.protocol.addresses import HostAddress
from state_lib.protocol.placement import owner_of
from state_lib.specs import StoreSpec, Topology
from state_lib.task import TaskContext
from tests.support.hosts import address
from tests.support.waiting import SLOWNESS, until

NOWHERE = Kafka({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
TOKEN = "secret"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
Start = Callable[..., None]


def path_of(app: str, key: str = "k") -> str:
    return f"/v1/apps/{app}/stores/kv/keys/{key}"


def topology(app: str, partitions: int) -> Topology:
    return Topology(app, partitions, (StoreSpec("kv", key_serde="utf8", value_serde="utf8"),))


def named(fits: Callable[[str], bool]) -> str:
    """The first application that is placed so."""
    return next(app for app in (f"app-{n}" for n in range(10_000)) if fits(app))


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """``start(address, hosts, topology or None, token)``: a host whose tasks never open."""

    @contextmanager
    def running(
        at: HostAddress, hosts: tuple[HostAddress, ...], known: Topology | None, token: str
    ) -> Iterator[None]:
        manager = TaskManager(TaskContext(KafkaLog(NOWHERE), at.id, tmp_path / at.id), hosts, 60)
        monkeypatch.setattr(manager.openers, "open_soon", lambda _task: None)
        if known is not None:
            manager.applications.adopt(known)
        server = HttpServer(manager, at, token)
        server.start()
        try:
            yield
        finally:
            server.stop()

    with ExitStack() as stack:

        def one(
            at: HostAddress,
            hosts: tuple[HostAddress, ...],
            known: Topology | None = None,
            token: str = TOKEN,
        ) -> None:
            stack.enter_context(running(at, hosts, known, token))

        yield one


def ask(at: HostAddress, path: str, **headers: str) -> tuple[int, dict[str, Any]]:
    answer = httpx.get(f"{at.http_url}{path}", headers={**AUTHORIZED, **headers})
    return answer.status_code, answer.json()


@pytest.fixture
def pair() -> tuple[HostAddress, HostAddress, str]:
    """A host that is asked, the owner of the only task, and their application."""
    asked, owner = address("asked"), address("owner")
    app = named(lambda app: owner_of(app, 0, (asked, owner)) == owner)
    return asked, owner, app


def test_the_owners_answer_comes_as_it_is(
    start: Start, pair: tuple[HostAddress, HostAddress, str]
) -> None:
    asked, owner, app = pair
    for host in (asked, owner):
        start(host, (asked, owner), topology(app, 1))
    mine = httpx.get(f"{owner.http_url}{path_of(app)}", headers=AUTHORIZED)
    theirs = httpx.get(f"{asked.http_url}{path_of(app)}", headers=AUTHORIZED)
    assert (mine.status_code, mine.json()["details"]["task"]) == (503, f"{app}/0")
    assert (theirs.status_code, theirs.json()) == (mine.status_code, mine.json())
    kept = {n: v for n, v in mine.headers.items() if n != "date"}
    assert {n: v for n, v in theirs.headers.items() if n != "date"} == kept
    assert httpx.get(f"{asked.http_url}{path_of(app)}").status_code == 401, "without the token"
    assert ask(asked, f"/v1/apps/{app}/tasks/0/restore")[0] == 421, "is no key"


def test_a_host_that_does_not_know_the_application_asks_one_that_does(
    start: Start, pair: tuple[HostAddress, HostAddress, str]
) -> None:
    asked, owner, app = pair
    start(asked, (asked, owner))
    start(owner, (asked, owner), topology(app, 1))
    assert ask(asked, path_of(app))[1]["details"] == {"task": f"{app}/0"}
    assert ask(asked, path_of(app), **{owners.FORWARDED: "x"})[0] == 404, "no further"
    assert ask(asked, f"/v1/apps/{app}/stores")[0] == 404, "lists are each host's own"
    status, body = ask(asked, path_of("nosuch"))
    assert (status, body["details"]["app"]) == (404, "nosuch")


def test_it_is_told_whose_the_key_is(start: Start) -> None:
    """It knows only who has the first task; that one names the owner."""
    hosts = asked, first, owner = address("asked"), address("first"), address("owner")
    second = next(str(i) for i in range(99) if partition_for(str(i).encode(), 2) == 1)
    app = named(
        lambda app: owner_of(app, 0, hosts) == first and owner_of(app, 1, hosts) == owner,
    )
    start(asked, hosts)
    for host in (first, owner):
        start(host, hosts, topology(app, 2))
    status, body = ask(asked, path_of(app, second))
    assert (status, body["details"]) == (503, {"task": f"{app}/1"})


def test_hosts_that_take_each_other_for_the_owner_do_not_loop(start: Start) -> None:
    """Their lists differ: each would ask the other for ever."""
    one, two, three = address("h1"), address("h2"), address("h3")
    whole, part = (one, two, three), (one, two)
    app = named(lambda app: owner_of(app, 1, whole) == two and owner_of(app, 1, part) == one)
    key = next(str(i) for i in range(99) if partition_for(str(i).encode(), 2) == 1)
    start(one, whole, topology(app, 2))
    start(two, part, topology(app, 2))
    status, body = ask(one, path_of(app, key))
    assert (status, body["code"]) == (421, "not-owner")
    assert body["details"]["url"] == two.http_url


def test_an_owner_that_is_away_is_named(
    start: Start, pair: tuple[HostAddress, HostAddress, str]
) -> None:
    asked, owner, app = pair
    start(asked, (asked, owner), topology(app, 1))
    answer = httpx.get(f"{asked.http_url}{path_of(app)}", headers=AUTHORIZED)
    body = answer.json()
    assert (answer.status_code, body["code"]) == (503, "unavailable")
    assert body["details"] == {"owner": "owner", "url": owner.http_url}
    assert "cannot be reached" in body["message"]
    assert "Retry-After" in answer.headers


def test_an_owner_that_hangs_is_waited_for_no_longer_than_that(
    start: Start,
    pair: tuple[HostAddress, HostAddress, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, owner, app = pair
    monkeypatch.setattr(owners, "ANSWER_S", 0.4)
    start(asked, (asked, owner), topology(app, 1))
    with socket.create_server((owner.host, owner.http_port)):  # it never answers
        began = time.monotonic()
        status, body = ask(asked, path_of(app))
        assert time.monotonic() - began < 5 * SLOWNESS
    assert (status, body["details"]["owner"]) == (503, "owner")
    assert body["details"]["timeout_s"] == 0.4
    assert "did not answer in time" in body["message"]


def test_an_owner_that_hangs_holds_only_so_many_connections(
    start: Start,
    pair: tuple[HostAddress, HostAddress, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, owner, app = pair
    monkeypatch.setattr(owners, "ANSWER_S", 20 * SLOWNESS)
    monkeypatch.setattr(owners, "MOST_WAITING", 3)
    start(asked, (asked, owner), topology(app, 1))
    with (
        ThreadPoolExecutor(10) as pool,
        socket.create_server((owner.host, owner.http_port)) as silent,
    ):
        asking = [pool.submit(ask, asked, path_of(app)) for _ in range(10)]
        held = [silent.accept()[0] for _ in range(3)]
        until(lambda: sum(one.done() for one in asking) == 7, 10, "refused at once")
        for connection in held:
            connection.close()
    said = [one.result() for one in asking]
    assert [status for status, _ in said] == [503] * 10
    assert sum("requests that it has not answered" in body["message"] for _, body in said) == 7


def test_another_token_of_the_owner_is_not_the_callers_fault(
    start: Start, pair: tuple[HostAddress, HostAddress, str]
) -> None:
    asked, owner, app = pair
    start(asked, (asked, owner), topology(app, 1))
    start(owner, (asked, owner), topology(app, 1), token="another")
    status, body = ask(asked, path_of(app))
    assert (status, body["details"]["owner"]) == (503, "owner")
    assert "HOLDFAST_TOKEN_FILE" in body["message"]


@pytest.mark.parametrize("key", ["..", ".", "a/b", "%2F", "a%20b", "ü", "?x=#&", "nul\0", "", "/"])
def test_any_key_arrives_as_it_was_asked(
    start: Start,
    pair: tuple[HostAddress, HostAddress, str],
    key: str,
) -> None:
    """Judged by the task that the owner names: one of fifty, by the key."""
    asked, owner, _ = pair
    hosts = (asked, owner)
    partition = partition_for(key.encode(), 50)
    app = named(lambda app: owner_of(app, partition, hosts) == owner)
    for host in hosts:
        start(host, hosts, topology(app, 50))
    status, body = ask(asked, path_of(app, quote(key, safe="").replace(".", "%2E")))
    assert (status, body["details"]) == (503, {"task": f"{app}/{partition}"})
