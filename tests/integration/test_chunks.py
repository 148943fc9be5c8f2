"""An exchange whose rows do not fit one Flight message: each part of it goes in several."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import orjson
import pyarrow as pa
import pytest

from state_lib.changelog.topics import dead_letter_queue
from state_lib.client import exchange as client_exchange
from state_lib.client.exchange import Exchange
from state_lib.client.flight import FlightHostClient
from tests.integration.conftest import MakeApp
from tests.support.apps import KV, NOON, App, batch
from tests.support.fold import committed, fold
from tests.support.hosts import address, claim, publish, served

ROWS, MOST = 5, 2


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of each message that is sent from now on."""
    monkeypatch.setattr(client_exchange, "CHUNK_ROWS", MOST)
    rows, send = list[int](), Exchange._send

    def counted(self: Exchange, message: Any, *columns: Any) -> None:
        rows.append(max(len(c) for c in columns if c is not None))
        send(self, message, *columns)

    monkeypatch.setattr(Exchange, "_send", counted)
    return rows


def binary(prefix: str) -> pa.BinaryArray:
    return pa.array([f"{prefix}{i}".encode() for i in range(ROWS)], pa.binary())


def letters() -> pa.BinaryArray:
    place = {"topic": "source", "partition": 0, "reason": "undecodable", "timestamp": 5}
    return pa.array([orjson.dumps({**place, "offset": i}) for i in range(ROWS)], pa.binary())


def offsets(app: App) -> list[int]:
    """Of the records that dead letters are of."""
    found = committed(str(app.kafka.properties["bootstrap.servers"]), dead_letter_queue(app.name))
    return [int(dict(m.headers() or [])["__streams.errors.offset"] or b"") for m in found]


def test_all_of_it_arrives_once_and_in_order(make_app: MakeApp, sent: list[int]) -> None:
    app, at = make_app([KV], outputs=["out"]), address()
    servers, out = str(app.kafka.properties["bootstrap.servers"]), app.topology.outputs[0].topic
    times = pa.array([NOON] * ROWS, pa.int64())
    with served(app, at) as host, closing(FlightHostClient(at, None)) as client:
        epoch = publish(app)
        claim(host, app, epoch)
        with client.exchange(app.name, 0, epoch, 1) as exchange:
            assert exchange.get("kv", binary("k")).to_pylist() == [None] * ROWS
            exchange.put("kv", binary("k"), binary("v"), times)
            exchange.output(out, binary("k"), binary("o"), times)
            exchange.dead_letters(letters())
            exchange.commit(batch(exchange.marker).header)
        assert sent == [2, 2, 1] * 4
        with client.exchange(app.name, 0, epoch, 2) as exchange:
            assert exchange.get("kv", binary("k")) == binary("v")
            exchange.dead_letters(letters()[:0])
            exchange.commit(batch(exchange.marker).header)
    assert offsets(app) == list(range(ROWS))
    values = [m.value() for m in committed(servers, out)]
    assert values == binary("o").to_pylist()
    assert fold(servers, app.topic("kv")) == {
        f"k{i}".encode(): f"v{i}".encode() for i in range(ROWS)
    }
