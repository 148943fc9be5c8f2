"""Executors and hosts over Arrow Flight: reads, commits, duplicates, errors, tokens."""

# ruff: noqa: PT012 - an exchange is a block, whichever of its lines is refused
from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
import pytest

from state_lib.changelog.topics import commits_topic, dead_letter_queue
from state_lib.client import flight as client_flight
from state_lib.client.exchange import Exchange
from state_lib.client.flight import FlightHostClient
from state_lib.errors import (
    HoldfastError,
    InvalidRequest,
    Moved,
    NotFound,
    NotOwner,
    Realign,
    StoreFull,
    Superseded,
    Unauthorized,
    Unavailable,
)
from state_lib.keys import window_key
from state_lib.protocol.addresses import HostAddress
from state_lib.protocol.marker import CommitHeader, Marker
from state_lib.protocol.placement import owner_of
from state_lib.protocol.positions import Positions
from state_lib.specs import StoreSpec
from tests.integration.conftest import MakeApp
from tests.support.apps import HOUR, KV, NOON, TS, WIN, App, batch
from tests.support.fold import committed, fold
from tests.support.host_process import Hosts
from tests.support.hosts import address, claim, publish, served
from tests.support.waiting import SLOWNESS

TOKEN = "only-for-tests"
HUNG_S, SOON_S = 0.5, 6.0 * SLOWNESS
"""For how long a host that hangs is waited for; without a bound it is 30 s and more."""
SMALL = StoreSpec("small", backend="memory", max_bytes=1000)


class Served:
    """A host with one claimed application, and as many clients as wanted."""

    def __init__(self, app: App, at: HostAddress, epoch: int) -> None:
        self.app, self.at, self.epoch = app, at, epoch

    def client(self, token: str | None = TOKEN) -> FlightHostClient:
        return FlightHostClient(self.at, token)

    def records(self, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        servers = str(self.app.kafka.properties["bootstrap.servers"])
        return [(m.key(), m.value()) for m in committed(servers, topic)]


@pytest.fixture
def host(make_app: MakeApp) -> Iterator[Served]:
    app = make_app([KV, TS, WIN, SMALL], outputs=["out"])
    at, epoch = address(), publish(app)
    with served(app, at, TOKEN):
        made = Served(app, at, epoch)
        with closing(made.client()) as client:
            claim(client, app, epoch)
        yield made


def binary(*values: bytes | None) -> pa.BinaryArray:
    return pa.array(values, pa.binary())


def times(n: int, time: int = NOON) -> pa.Int64Array:
    return pa.array([time] * n, pa.int64())


def header(marker: Marker, n: int | None = None) -> CommitHeader:
    return batch(marker, n=n).header


def put(exchange: Exchange, value: bytes, store: str = "kv") -> None:
    exchange.put(store, binary(b"a"), binary(value), times(1))


def commit_one(client: FlightHostClient, host: Served, n: int, value: bytes) -> Marker:
    with client.exchange(host.app.name, 0, host.epoch, n) as exchange:
        if exchange.already_done:
            return exchange.marker
        exchange.get("kv", binary(b"a"))
        put(exchange, value)
        return exchange.commit(header(exchange.marker, n))


def test_read_merge_commit(host: Served) -> None:
    out = host.app.topology.outputs[0].topic
    window = window_key(b"a", NOON)
    letter = (
        b'{"topic":"source","partition":0,"offset":7,"reason":"undecodable","timestamp":5,'
        b'"key":null,"value":"Pw=="}'
    )
    with closing(host.client()) as client:
        with client.exchange(host.app.name, 0, host.epoch, 1) as exchange:
            assert exchange.get("kv", binary(b"a", b"b")).to_pylist() == [None, None]
            exchange.put("kv", binary(b"a", b"b"), binary(b"1", b"2"), times(2))
            exchange.put("kv", binary(b"c"), binary(b"3"), times(1))
            exchange.put("ts", binary(b"a"), binary(b"4"), times(1, 77))
            exchange.put("win", binary(window), binary(b"5"), times(1))
            exchange.output(out, binary(b"a", None), binary(b"6", b"7"), times(2))
            exchange.dead_letters(binary(letter))
            first = exchange.commit(header(exchange.marker))
        assert (first.epoch, first.batch_number) == (host.epoch, 1)
        assert client.marker(host.app.name, 0) == first
        with client.exchange(host.app.name, 0, host.epoch, 2) as exchange:
            assert exchange.get("kv", binary(b"a", b"b", b"c", b"d")).to_pylist() == [
                b"1", b"2", b"3", None,
            ]  # fmt: skip
            assert exchange.get("ts", binary(b"a")).to_pylist() == [(77).to_bytes(8, "big") + b"4"]
            assert exchange.get("kv", binary()).to_pylist() == []
            exchange.put("kv", binary(b"b"), binary(None), times(1))
            exchange.commit(header(exchange.marker))
        marker, chunks = client.scan(host.app.name, 0, "kv")
        rows = [r for chunk in chunks for r in chunk.to_pylist()]
        assert marker.batch_number == 2
        assert rows == [{"key": b"a", "value": b"1"}, {"key": b"c", "value": b"3"}]
    servers = str(host.app.kafka.properties["bootstrap.servers"])
    assert fold(servers, host.app.topic("kv")) == {b"a": b"1", b"c": b"3"}
    assert host.records(out) == [(b"a", b"6"), (None, b"7")]
    dead = committed(servers, dead_letter_queue(host.app.name))[0]
    assert (dead.key(), dead.value()) == (None, b"?")
    headers = dict(dead.headers() or [])
    assert headers["__streams.errors.message"] == b"undecodable"
    assert headers["__streams.errors.offset"] == b"7"


def test_a_range_is_read_page_by_page(host: Served) -> None:
    keys = [b"k%d" % i for i in range(5)]
    with closing(host.client()) as client:
        with client.exchange(host.app.name, 0, host.epoch, 1) as exchange:
            exchange.put("kv", binary(*keys), binary(*keys), times(5))
            exchange.commit(header(exchange.marker))
        with client.exchange(host.app.name, 0, host.epoch, 2) as exchange:
            first = exchange.page("kv", b"k1", b"k4", 2)
            assert (first.entries, first.more) == ([(k, k) for k in keys[1:3]], True)
            assert exchange.get("kv", binary(b"k0")).to_pylist() == [b"k0"]
            last = exchange.page("kv", b"k2\0", b"k4", 2)
            assert (last.entries, last.more) == ([(keys[3], keys[3])], False)
            assert exchange.page("kv", None, None, 9).entries == [(k, k) for k in keys]
            assert exchange.page("kv", b"l", None, 9).entries == []
        with (
            closing(host.client()) as other,
            pytest.raises(Moved),
            client.exchange(host.app.name, 0, host.epoch, 3) as exchange,
        ):
            exchange.page("kv", None, None, 1)
            commit_one(other, host, 2, b"meanwhile")
            exchange.page("kv", None, None, 1)


def test_an_exchange_that_ends_early_changes_nothing(host: Served) -> None:
    with closing(host.client()) as client:
        with client.exchange(host.app.name, 0, host.epoch, 1) as exchange:
            put(exchange, b"never")
        assert client.marker(host.app.name, 0).batch_number == 0
        assert commit_one(client, host, 1, b"1").batch_number == 1
    assert host.records(host.app.topic("kv")) == [(b"a", b"1")]


def test_two_copies_at_once_are_one_transaction(host: Served) -> None:
    barrier, answers = threading.Barrier(2, timeout=20), []

    def copy(value: bytes) -> None:
        with (
            closing(host.client()) as client,
            client.exchange(host.app.name, 0, host.epoch, 1) as exchange,
        ):
            exchange.get("kv", binary(b"a"))
            put(exchange, value)
            barrier.wait()
            answers.append(exchange.commit(header(exchange.marker)))

    threads = [threading.Thread(target=copy, args=(v,)) for v in (b"1", b"2")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [m.batch_number for m in answers] == [1, 1]
    assert len(host.records(host.app.topic("kv"))) == 1
    markers = host.records(commits_topic(host.app.name))
    assert [Marker.from_bytes(v or b"").batch_number for _, v in markers].count(1) == 1


def test_a_copy_that_comes_too_late_is_never_applied(host: Served) -> None:
    with closing(host.client()) as client, closing(host.client()) as late:
        with late.exchange(host.app.name, 0, host.epoch, 1) as slow:
            slow.get("kv", binary(b"a"))
            put(slow, b"late")
            commit_one(client, host, 1, b"1")
            commit_one(client, host, 2, b"2")
            assert slow.commit(header(slow.marker, 1)).batch_number == 2, "done already"
        with pytest.raises(Realign), late.exchange(host.app.name, 0, host.epoch, 3) as slow:
            slow.get("kv", binary(b"a"))
            put(slow, b"late")
            commit_one(client, host, 3, b"3")
            slow.commit(header(slow.marker, 4))
        with (
            pytest.raises(Moved, match="moved"),
            late.exchange(host.app.name, 0, host.epoch, 4) as slow,
        ):
            slow.get("kv", binary(b"a"))
            commit_one(client, host, 4, b"4")
            slow.get("kv", binary(b"a"))
        assert commit_one(late, host, 2, b"late").batch_number == 4
    assert [v for _, v in host.records(host.app.topic("kv"))] == [b"1", b"2", b"3", b"4"]


def test_the_answer_that_a_batch_is_done_already_is_not_lost(host: Served) -> None:
    """A host that ends the call before the client's first message would lose one in seventy."""
    with closing(host.client()) as client:
        commit_one(client, host, 1, b"1")
    for _ in range(400):
        with closing(host.client()) as client:
            assert commit_one(client, host, 1, b"late").batch_number == 1


def test_a_newer_driver_ends_the_exchanges_of_the_old_one(host: Served) -> None:
    newer = publish(host.app)
    with closing(host.client()) as client, closing(host.client()) as other:
        with pytest.raises(Superseded), client.exchange(host.app.name, 0, host.epoch, 1) as old:
            put(old, b"old")
            assert claim(other, host.app, newer).epoch == newer
            old.commit(header(old.marker))
        with pytest.raises(Superseded) as refused, client.exchange(host.app.name, 0, host.epoch, 1):
            pass
        assert refused.value.details == {"epoch": host.epoch, "current": newer}
    assert host.records(host.app.topic("kv")) == []


def test_errors_cross_the_wire_as_themselves(host: Served) -> None:
    app = host.app.name
    with closing(host.client()) as client:
        wrong: list[tuple[type[HoldfastError], str, str]] = [
            (NotFound, "get", "nope"),
            (InvalidRequest, "put", "nope"),
            (StoreFull, "put", "small"),
        ]
        for error, op, store in wrong:
            with pytest.raises(error), client.exchange(app, 0, host.epoch, 1) as exchange:
                if op == "get":
                    exchange.get(store, binary(b"a"))
                else:
                    put(exchange, b"x" * 5000, store)
                    exchange.commit(header(exchange.marker))
        with pytest.raises(Realign), client.exchange(app, 0, host.epoch, 1) as exchange:
            elsewhere = header(Marker(epoch=host.epoch, positions=Positions({("source", 0): 3})))
            exchange.commit(elsewhere)
        for call in (
            lambda: client.marker("unknown", 0),
            lambda: client.marker(app, 1),
            lambda: client.scan(app, 0, "nope"),
            lambda: client.claim(app, 0, host.epoch + 50),
        ):
            with pytest.raises(NotFound):
                call()
        with pytest.raises(InvalidRequest):
            client._act("dance", {}, 60)
        assert commit_one(client, host, 1, b"1").batch_number == 1, "none of it harmed the task"


def test_no_token_no_answer(host: Served) -> None:
    for token in (None, "wrong", "", TOKEN + "x"):
        with closing(host.client(token)) as client:
            for call in (
                lambda c=client: c.marker(host.app.name, 0),
                lambda c=client: c.claim(host.app.name, 0, host.epoch),
                lambda c=client: c.scan(host.app.name, 0, "kv"),
                lambda c=client: commit_one(c, host, 1, b"1"),
            ):
                with pytest.raises(Unauthorized):
                    call()
    assert host.records(host.app.topic("kv")) == []


def test_a_host_that_is_not_there_is_worth_a_retry() -> None:
    with closing(FlightHostClient(address(), None)) as client, pytest.raises(Unavailable):
        client.marker("app", 0)


def test_the_wrong_host_names_the_right_one(make_app: MakeApp) -> None:
    app = make_app()
    epoch, hosts = publish(app), [address("host-1"), address("host-2")]
    for at in hosts:
        with served(app, at, hosts=hosts), closing(FlightHostClient(at, None)) as client:
            if at == owner_of(app.name, 0, hosts):
                assert claim(client, app, epoch).owner == at.id
                continue
            with pytest.raises(NotOwner) as refused:
                claim(client, app, epoch)
            assert {refused.value.details["owner"], at.id} == {"host-1", "host-2"}


def test_expired_windows_are_not_read(host: Served) -> None:
    window = window_key(b"a", NOON)
    with closing(host.client()) as client:
        with client.exchange(host.app.name, 0, host.epoch, 1) as exchange:
            exchange.put("win", binary(window), binary(b"1"), times(1))
            marker = exchange.commit(header(exchange.marker))
        later = batch(marker, clock=NOON + 4 * HOUR).header
        with client.exchange(host.app.name, 0, host.epoch, 2) as exchange:
            assert exchange.get("win", binary(window)).null_count == 0
            exchange.commit(later)
        with client.exchange(host.app.name, 0, host.epoch, 3) as exchange:
            assert exchange.get("win", binary(window)).null_count == 1
        assert sum(c.num_rows for c in client.scan(host.app.name, 0, "win")[1]) == 0


def test_some_keys_of_a_store_and_stores_without_any(host: Served) -> None:
    windows = [window_key(key, NOON - h * HOUR) for key in (b"a", b"ab") for h in range(5)]
    with closing(host.client()) as client:
        with client.exchange(host.app.name, 0, host.epoch, 1) as exchange:
            exchange.put("kv", binary(b"a", b"ab", b"b"), binary(b"1", b"2", b"3"), times(3))
            exchange.put("win", binary(*windows), binary(*[b"w"] * 10), times(10))
            marker = exchange.commit(header(exchange.marker))

        def scanned(store: str, *keys: bytes) -> list[bytes]:
            at, chunks = client.scan(host.app.name, 0, store, keys or None)
            assert at == marker
            return [key for chunk in chunks for key in chunk.column("key").to_pylist()]

        assert scanned("kv") == [b"a", b"ab", b"b"]
        assert scanned("kv", b"b", b"none", b"a", b"b") == [b"a", b"b"]
        assert sorted(scanned("win", b"a")) == sorted(windows[:4]), "the fifth has expired"
        assert scanned("ts") == scanned("ts", b"a") == scanned("win", b"none") == []


def test_a_host_tells_what_an_application_is(host: Served) -> None:
    with closing(host.client()) as client:
        told = client.topology(host.app.name)
        assert (told.app, told.partitions, told.stores) == (host.app.name, 1, (KV, TS, WIN, SMALL))
        assert told.extra["epoch"] == host.epoch
        with pytest.raises(NotFound) as unknown:
            client.topology("nope")
        assert host.app.name in unknown.value.details["known"]
    with closing(host.client("wrong")) as client, pytest.raises(Unauthorized):
        client.topology(host.app.name)


def test_a_host_that_hangs_is_not_waited_for_without_end(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped process keeps its connections: nothing is refused, and nothing is answered."""
    for bound in ("LOOK_S", "PLAN_S", "FORGET_S", "READ_S"):
        monkeypatch.setattr(client_flight, bound, HUNG_S)
    app = make_app([KV])
    hosts = Hosts(app)
    hosts.start(publish(app))
    try:
        marker = hosts.commit(1, {b"a": b"1"})
        (host,) = hosts.processes.values()
        with hosts.client() as client:
            os.kill(host.pid, signal.SIGSTOP)
            try:
                for ask in (
                    lambda: client.claim(app.name, 0, hosts.epoch),
                    lambda: client.marker(app.name, 0, HUNG_S),
                    lambda: client.exchange(app.name, 0, hosts.epoch, 2, HUNG_S).__enter__(),
                    lambda: client.holdings(app.name, HUNG_S),
                    lambda: client.restore_plan(app.name, 0),
                    lambda: client.past_plan(app.name, 0, "any", republish=False),
                    lambda: client.loss(app.name, 0),
                    lambda: client.forget(app.name, hosts.epoch),  # no reset: it would be refused
                    lambda: client.scan(app.name, 0, "kv"),
                    lambda: next(client.digests(app.name, 0)),
                ):
                    began = time.monotonic()
                    with pytest.raises(Unavailable, match="cannot be reached"):
                        ask()
                    assert time.monotonic() - began < SOON_S
            finally:
                os.kill(host.pid, signal.SIGCONT)
            monkeypatch.undo()
            assert client.marker(app.name, 0).batch_number == marker.batch_number
    finally:
        hosts.stop()
