"""Real host processes, to be killed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from state_lib.client.flight import FlightHostClient
from state_lib.config import Settings
from state_lib.protocol.marker import Marker
from state_lib.protocol.placement import owner_of
from tests.support.apps import App, batch
from tests.support.hosts import address, claim
from tests.support.waiting import SLOWNESS

TOKEN = "only-for-tests"


class Hosts:
    """Processes of one group of hosts; failpoints are armed by writing the file ``armed``."""

    def __init__(self, app: App, count: int = 1, **flags: Any) -> None:
        self.app = app
        self.armed = app.root / "failpoints"
        self.armed.touch()
        addresses = [address(f"host-{i}") for i in range(1, count + 1)]
        self.settings = Settings.load(
            home=app.root / "home",
            bootstrap_servers=str(app.kafka.properties["bootstrap.servers"]),
            replication_factor=1,
            hosts=",".join(f"{a.id}={a.host}:{a.flight_port}/{a.http_port}" for a in addresses),
            token=TOKEN,
            **flags,
        )
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.epoch = -1

    @property
    def url(self) -> str:
        return self.settings.snapshots_url

    def start(self, epoch: int) -> None:
        """Start those that do not run, and claim every task."""
        self.epoch = epoch
        self.launch()
        for partition in range(self.app.topology.partitions):
            with self.client(partition) as client:
                claim(client, self.app, epoch, partition)

    def launch(self) -> None:
        """Start those that do not run."""
        points = {"HOLDFAST_FAILPOINTS": f"@{self.armed}"}
        for host in self.settings.host_addresses:
            running = self.processes.get(host.id)
            if running is not None and running.poll() is None:
                continue
            with (self.app.root / f"{host.id}.log").open("ab") as log:
                self.processes[host.id] = subprocess.Popen(
                    [sys.executable, "-m", "state_lib.host", "--id", host.id],
                    env={**os.environ, **self.settings.as_environment(), **points},
                    stdout=log,
                    stderr=log,
                )

    def lose(self, host: str = "host-1") -> None:
        """SIGKILL, and nothing of its disk is left."""
        self.processes[host].kill()
        self.processes[host].wait()
        shutil.rmtree(self.settings.home / "state" / host)

    def stop(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait(60 * SLOWNESS)

    @contextmanager
    def client(self, partition: int = 0) -> Iterator[FlightHostClient]:
        owner = owner_of(self.app.name, partition, self.settings.host_addresses)
        with closing(FlightHostClient(owner, TOKEN)) as client:
            yield client

    def commit(self, n: int, rows: dict[bytes, bytes], partition: int = 0) -> Marker:
        """Batch ``n`` of one task."""
        with (
            self.client(partition) as client,
            client.exchange(self.app.name, partition, self.epoch, n) as exchange,
        ):
            if exchange.already_done:
                return exchange.marker
            keys, values = list(rows), list(rows.values())
            stamps = pa.array([1] * len(keys), pa.int64())
            exchange.put("kv", pa.array(keys, pa.binary()), pa.array(values, pa.binary()), stamps)
            return exchange.commit(batch(exchange.marker, n=n).header)

    def state(self, host: str = "host-1") -> Path:
        """The directory of an application's tasks on a host."""
        return self.settings.home / "state" / host / self.app.name
