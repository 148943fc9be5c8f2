"""A host that answers and refuses a commit is waited for no longer than one that is away."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from state_lib.client.flight import FlightHostClient
from state_lib.errors import Unavailable
from state_lib.executor.exchange import exchange
from state_lib.executor.plan import BatchPlan, ExchangePlan
from state_lib.kafka import Kafka
from state_lib.protocol.marker import NO_TIME
from state_lib.protocol.positions import Positions
from state_lib.task import room
from tests.support.apps import App
from tests.support.apps import at as position
from tests.support.declared import counting
from tests.support.hosts import address, claim, publish, served
from tests.support.waiting import SLOWNESS

pytestmark = pytest.mark.timeout(60)
SOON_S = 8.0 * SLOWNESS
"""Less than an exchange may take, here 300 s; about 3 s on an idle machine."""


def test_a_commit_that_is_refused_is_given_up(
    kafka: Kafka, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = counting(name, {"source": "counts"}, 1)
    app, at = App(kafka, job.topology, tmp_path), address()
    app.create()
    epoch = publish(app)
    batch = BatchPlan(epoch, 1, Positions(), position(1), NO_TIME, 0, 0, {})
    plan = ExchangePlan(name, 1, (), batch, (at,), None, timeout_s=300.0, patience_s=1.0)
    with served(app, at) as host, closing(FlightHostClient(at, None)) as client:
        claim(host, app, epoch)
        with monkeypatch.context() as full:
            full.setattr(room, "MIN_FREE_BYTES", 1 << 60)
            began = time.monotonic()
            with pytest.raises(Unavailable, match="MiB free, a commit of"):
                exchange(plan, 0, None, client)
            assert time.monotonic() - began < SOON_S
        assert exchange(plan, 0, None, client).batch_number == batch.batch_number, (
            "there is room again"
        )
