"""One task with something in it on the hosts of a running stack: no driver, no Spark."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pyarrow as pa

from state_lib.client.flight import FlightHostClient
from state_lib.kafka import Kafka
from state_lib.specs import Topology
from state_lib.stack import Stack
from tests.support.apps import KV, SOURCE, App, batch
from tests.support.hosts import claim, publish

ENTRIES = 1000


def filled(stack: Stack, name: str) -> App:
    """An application of one task, claimed and committed to, on the stack's only host."""
    made = App(Kafka.of(stack.settings), Topology(name, 1, (KV,), (), (SOURCE,)), Path())
    made.create()
    (address,) = stack.settings.host_addresses
    epoch = publish(made, [address])
    with closing(FlightHostClient(address, None)) as client:
        marker = claim(client, made, epoch)
        with client.exchange(name, 0, epoch, 1) as exchange:
            keys = pa.array([f"{i}".encode() for i in range(ENTRIES)], pa.binary())
            exchange.put("kv", keys, keys, pa.array([1] * ENTRIES, pa.int64()))
            exchange.commit(batch(marker, n=1).header)
    return made
