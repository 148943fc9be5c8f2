"""A host's memory is bounded by its configuration, not by its stores.

``python -m benchmarks.host_memory [--keys 10000000] [--batch 200000]``

Starts a broker and one host with small RocksDB budgets, commits distinct keys through the same
exchange that executors use, in batches over all tasks, and prints the host's resident memory
after every million (or every batch, if that is larger), and the greatest at the end.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks import sources
from benchmarks.committer import CHUNK, Committer
from benchmarks.contenders.engine import Query
from benchmarks.contenders.holdfast import Holdfast
from benchmarks.world import World
from state_lib.logs import configure_logging

EVERY = 1_000_000
MIB = 1 << 20


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--batch", type=int, default=CHUNK, help="keys of a batch, over all tasks")
    keys, batch = (given := parser.parse_args()).keys, given.batch
    every = max(EVERY, batch)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    configure_logging("WARNING")
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder,
        World(Path(folder), 1.0, print) as world,
    ):
        query = Query("bench-memory", "empty")
        holdfast = Holdfast(
            world, query, hosts=1, block_cache_bytes=64 * MIB, write_buffer_bytes=64 * MIB
        )
        committer = Committer(world, holdfast, query)
        committer.create()
        holdfast.start_hosts()
        try:
            committer.claim()
            host = psutil.Process(holdfast.hosts[0].process.pid)
            _tell(0, host, 0, holdfast.home)
            ids, started = sources.ids("distinct", keys), time.monotonic()
            for at in range(0, keys, every):
                committer.write(ids[at : at + every], chunk=batch)
                done = min(at + every, keys)
                _tell(done, host, done / (time.monotonic() - started), holdfast.home)
            print(json.dumps({"peak_mib": _peak(host.pid) // MIB}), flush=True)
        finally:
            committer.close()
            holdfast.stop()


def _peak(pid: int) -> int:
    """The greatest resident memory so far, in bytes, as Linux keeps it."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def _tell(keys: int, host: psutil.Process, per_s: float, home: Path) -> None:
    stores = sum(p.stat().st_size for p in (home / "state").rglob("*") if p.is_file())
    rss = host.memory_info().rss // MIB
    line = {"keys": keys, "rss_mib": rss, "keys_per_s": round(per_s), "stores_mib": stores // MIB}
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
