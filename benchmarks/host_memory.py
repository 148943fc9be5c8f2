"""A host's memory is bounded by its configuration, not by its stores.

``python -m benchmarks.host_memory [--keys 10000000]``

Starts a broker and one host with small RocksDB budgets, commits distinct keys through the same
exchange that executors use, and prints the host's resident memory after every million.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa

from benchmarks.steady_state import own_settings
from state_lib.changelog.admin import ensure_topics
from state_lib.changelog.topics import plan_topics
from state_lib.client.flight import FlightHostClient
from state_lib.errors import Unavailable
from state_lib.kafka import Kafka
from state_lib.marker import CommitHeader
from state_lib.spark.claims import write_claim
from state_lib.specs import StoreSpec, Topology
from state_lib.stack import Stack

BATCH = 200_000
TASKS = 2
MIB = 1 << 20


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=10_000_000)
    keys = parser.parse_args().keys
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as home:
        settings = own_settings(
            Path(home), hosts=1, block_cache_bytes=64 * MIB, write_buffer_bytes=64 * MIB
        )
        stack = Stack(settings)
        status = stack.up()
        try:
            host = psutil.Process(status["host-1"].pid)
            print(json.dumps({"keys": 0, "rss_mib": host.memory_info().rss // MIB}), flush=True)
            store = StoreSpec("counts", "timestamped-key-value", value_serde="int64")
            topology = Topology("memory", TASKS, (store,))
            kafka = Kafka.of(settings)
            ensure_topics(kafka.admin(), plan_topics(topology), 1, 1)
            epoch = write_claim(kafka, topology)
            client = FlightHostClient(settings.host_addresses[0], settings.read_token())
            for task in range(TASKS):
                _claim(client, task, epoch)
            started, peak = time.monotonic(), 0
            for n, first in enumerate(range(0, keys, BATCH), 1):
                _commit(client, n % TASKS, epoch, n, first)
                peak = max(peak, host.memory_info().rss)
                if (first + BATCH) % 1_000_000 == 0:
                    done = first + BATCH
                    line = {
                        "keys": done,
                        "rss_mib": host.memory_info().rss // MIB,
                        "peak_mib": peak // MIB,
                        "keys_per_s": round(done / (time.monotonic() - started)),
                        "stores_mib": _disk(settings.home / "state") // MIB,
                    }
                    print(json.dumps(line), flush=True)
        finally:
            stack.down()


def _claim(client: FlightHostClient, task: int, epoch: int) -> None:
    for _ in range(100):
        try:
            client.claim("memory", task, epoch)
        except Unavailable:
            time.sleep(0.2)
        else:
            return
    raise SystemExit(f"task {task} did not open")


def _commit(client: FlightHostClient, task: int, epoch: int, n: int, first: int) -> None:
    ids = np.arange(first, first + BATCH, dtype=">i8")
    # A multiplicative hash, so that keys come in random order over the whole key space.
    scattered = np.sort((ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).astype(">u8"))
    keys = pa.array([scattered[i : i + 1].tobytes() for i in range(BATCH)], pa.binary())
    values = pa.array([b"\x00" * 7 + b"\x01"] * BATCH, pa.binary())
    stamps = pa.array(np.full(BATCH, 1_700_000_000_000 + n))
    with client.exchange("memory", task, epoch, n) as exchange:
        exchange.get("counts", keys)
        exchange.put("counts", keys, values, stamps)
        exchange.commit(CommitHeader(epoch=epoch, n=n, from_={}, to={}, clock=n))


def _disk(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


if __name__ == "__main__":
    main()
