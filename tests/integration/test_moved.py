"""A copy of a batch that is overtaken within its reads: what it has read belongs to two commits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from state_lib.client.exchange import Exchange
from state_lib.client.flight import FlightHostClient
from state_lib.declaration import Declaration
from state_lib.errors import Moved
from state_lib.executor.exchange import exchange
from state_lib.executor.plan import BatchPlan, ExchangePlan
from state_lib.kafka import Kafka
from state_lib.protocol.addresses import HostAddress
from state_lib.protocol.marker import NO_TIME, Marker
from state_lib.protocol.positions import Positions
from tests.support.apps import App
from tests.support.apps import at as position
from tests.support.declared import count
from tests.support.hosts import address, claim, publish, served


@dataclass
class Copies:
    """Copies of the batches of one task that counts in two stores."""

    job: Declaration
    at: HostAddress
    epoch: int

    def run(self, n: int) -> Marker:
        verbs = tuple(verb.kept for verb in self.job.aggregations)
        start = Positions() if n == 1 else position(n - 1)
        batch = BatchPlan(self.epoch, n, start, position(n), NO_TIME, 0, 0, {})
        plan = ExchangePlan(self.job.id, 1, verbs, batch, (self.at,), None, 20.0)
        with closing(FlightHostClient(self.at, None)) as client:
            return exchange(plan, 0, rows(), client)

    def counts(self) -> list[int]:
        with closing(FlightHostClient(self.at, None)) as client:
            found = [client.scan(self.job.id, 0, store)[1] for store in ("one", "two")]
            values = [v for chunks in found for c in chunks for v in c.column("value").to_pylist()]
        return [int.from_bytes(v[8:], "big") for v in values]


def rows() -> pa.Table:
    """One row for each of two verbs, as `state_lib.spark.frames.combine` makes them."""
    numbers = {"src": pa.int32(), "start": pa.int64(), "n": pa.int64(), "ts": pa.int64()}
    columns = {name: pa.array([int(name == "n")] * 2, kind) for name, kind in numbers.items()}
    kinds = {"task": pa.array([0, 0], pa.int32()), "kind": pa.array([0, 1], pa.int32())}
    return pa.table({**kinds, "key": pa.array([b"k", b"k"], pa.binary()), **columns})


@pytest.fixture
def copies(kafka: Kafka, name: str, tmp_path: Path) -> Iterator[Copies]:
    job = Declaration(name, 1, tuple(count("source", store) for store in ("one", "two")))
    app, at = App(kafka, job.topology, tmp_path), address()
    app.create()
    epoch = publish(app)
    with served(app, at) as host:
        claim(host, app, epoch)
        yield Copies(job, at, epoch)


def test_it_begins_again_and_finds_its_batch_done(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert copies.run(1).batch_number == 1
    refused = overtaken(monkeypatch, lambda: copies.run(2))
    assert copies.run(2).batch_number == 2
    assert len(refused) == 1
    assert copies.counts() == [2, 2], "and nothing is counted twice"


def overtaken(monkeypatch: pytest.MonkeyPatch, other: Callable[[], object]) -> list[Moved]:
    """Let another copy commit between the first and the second read of the next exchange."""
    get, reads, refused = Exchange.get, [], list[Moved]()

    def slow(self: Exchange, store: str, keys: Any) -> Any:
        reads.append(store)
        if len(reads) == 2:
            other()
        try:
            return get(self, store, keys)
        except Exception as error:
            refused.append(error)  # type: ignore[arg-type]
            raise

    monkeypatch.setattr(Exchange, "get", slow)
    return refused
