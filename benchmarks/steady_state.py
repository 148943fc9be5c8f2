"""Steady state of the benchmark query: count by key, exactly-once, four tasks, two hosts.

``python -m benchmarks.steady_state [--records 4000000] [--keys zipf|distinct|both]``

Starts a stack of its own (temporary home, free ports), loads the records, runs the query in
batches of 400,000 and prints records per second from the end of the first batch to the end of the
last, with the CPU seconds and peak memory of each process. Nothing is asserted: it measures.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from state_lib.config import Settings
from state_lib.stack import Stack
from state_lib.stack.ports import free_port

PARTITIONS = 4
BATCH = 400_000
JOB = Path(__file__).parent / "jobs" / "count_by_key.py"


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--keys", choices=["zipf", "distinct", "both"], default="both")
    parser.add_argument("--batch", type=int, default=BATCH)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as home:
        settings = own_settings(Path(home), max_offsets_per_trigger=options.batch)
        stack = Stack(settings)
        stack.up()
        try:
            for keys in ["zipf", "distinct"] if options.keys == "both" else [options.keys]:
                load(settings.bootstrap_servers, keys, options.records)
                print(json.dumps(run(settings, keys, options.records)), flush=True)
        finally:
            stack.down()


def own_settings(home: Path, hosts: int = 2, **flags: Any) -> Settings:
    """Settings of a stack that shares nothing with any other."""
    names = range(1, hosts + 1)
    addresses = ",".join(f"host-{i}=127.0.0.1:{free_port()}/{free_port()}" for i in names)
    return Settings.load(
        home=home,
        hosts=addresses,
        kafka_port=free_port(),
        kafka_controller_port=free_port(),
        spark_ui_port=free_port(),
        **flags,
    )


def load(bootstrap: str, keys: str, records: int) -> None:
    """Write the records: Zipf(1.2) over a million keys, or all distinct in random order."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(keys, PARTITIONS, 1, config={"retention.ms": "-1"})
    admin.create_topics([topic])[keys].result()
    rng = np.random.default_rng(1)
    ids = rng.permutation(records) if keys == "distinct" else rng.zipf(1.2, records) % 1_000_000
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000}
    )
    for start in range(0, records, 200_000):
        messages = [{"key": b"key-%08d" % i, "value": b"v"} for i in ids[start : start + 200_000]]
        for partition in range(PARTITIONS):
            producer.produce_batch(keys, messages[partition::PARTITIONS], partition=partition)
        producer.flush()


def run(settings: Settings, keys: str, records: int) -> dict[str, Any]:
    """Run the query to the end of the topic; returns what was measured."""
    log = settings.home / f"{keys}.log"
    started = time.monotonic()
    environment = {**os.environ, **settings.as_environment(), "BENCH_TOPIC": keys}
    with log.open("w") as out:
        driver = subprocess.Popen(
            [sys.executable, str(JOB)], env=environment, stderr=out, stdout=out
        )
        watched = _watch(driver.pid, settings.home)
        batches: list[dict[str, Any]] = []
        while sum(b["rows"] for b in batches) < records:
            time.sleep(0.5)
            if driver.poll() is not None:
                raise SystemExit(f"the driver ended: {log.read_text()[-2000:]}")
            watched.sample()
            batches = [e for e in _events(log) if e["event"] == "batch"]
        first = next(b["at"] for b in batches)
        seconds = batches[-1]["at"] - first
        driver.terminate()
        driver.wait(60)
    return {
        "keys": keys,
        "records": records,
        "records_per_s": round((records - batches[0]["rows"]) / seconds),
        "start_to_first_batch_s": round(batches[0]["seconds"], 1),
        "wall_s": round(time.monotonic() - started, 1),
        "batch_s": [b["seconds"] for b in batches],
        "processes": watched.summary(),
    }


def _events(log: Path) -> list[dict[str, Any]]:
    out = []
    for line in log.read_text().splitlines():
        if line.startswith("{") and line.endswith("}"):
            event = json.loads(line)
            event["at"] = datetime.fromisoformat(event["timestamp"]).timestamp()
            out.append(event)
    return out


class _watch:  # noqa: N801
    """CPU seconds and peak resident memory by role, sampled."""

    def __init__(self, driver: int, home: Path) -> None:
        self._driver, self._home = driver, str(home)
        self._cpu: dict[str, dict[int, float]] = {}
        self._rss: dict[str, int] = {}
        self._start: dict[int, float] = {}

    def sample(self) -> None:
        """Look once."""
        for process in psutil.process_iter(["pid", "cmdline", "ppid"]):
            try:
                role = self._role(process)
                if role is None:
                    continue
                times = process.cpu_times()
                cpu = times.user + times.system
                start = self._start.setdefault(
                    process.pid, cpu if role in ("kafka", "hosts") else 0
                )
                self._cpu.setdefault(role, {})[process.pid] = cpu - start
                rss = process.memory_info().rss
                self._rss[role] = max(self._rss.get(role, 0), rss)
            except psutil.Error:
                continue

    def summary(self) -> dict[str, Any]:
        """Per role: CPU seconds in all, peak MiB of one process."""
        return {
            role: {
                "cpu_s": round(sum(self._cpu[role].values()), 1),
                "peak_mib": self._rss[role] >> 20,
            }
            for role in sorted(self._cpu)
        }

    def _role(self, process: psutil.Process) -> str | None:
        line = " ".join(process.info["cmdline"] or [])
        if self._home in line and "kafka.Kafka" in line:
            return "kafka"
        if "state_lib.host" in line and self._home in process.environ().get("HOLDFAST_HOME", ""):
            return "hosts"
        ancestors = {p.pid for p in process.parents()}
        if process.pid == self._driver:
            return "driver"
        if self._driver in ancestors:
            return "spark jvm" if process.name() == "java" else "python workers"
        return None


if __name__ == "__main__":
    main()
