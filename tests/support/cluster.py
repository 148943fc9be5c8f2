"""Two hosts in this process, and applications that commit on them over Flight."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from state_lib.apps.hosts import Hosts
from state_lib.changelog.admin import ensure_topics
from state_lib.changelog.topics import (
    plan_topics,
)
from state_lib.cli import app as cli
from state_lib.client.flight import FlightHostClient
from state_lib.driver.claims import check_same_application
from state_lib.host.tasks import TaskManager
from state_lib.protocol.addresses import HostAddress
from state_lib.protocol.marker import Marker
from state_lib.protocol.placement import owner_of
from tests.support.apps import App, batch
from tests.support.hosts import address, claim, publish

TOKEN = "only-for-tests"
PARTITIONS = 3


class Cluster:
    """Two hosts, and applications that commit on them over Flight."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.addresses = [address("host-1"), address("host-2")]
        self.managers: list[TaskManager] = []
        self.hosts = Hosts(self.addresses, TOKEN)
        self.clients = [FlightHostClient(at, TOKEN) for at in self.addresses]

    def client(self, app: App, partition: int) -> FlightHostClient:
        owner = owner_of(app.name, partition, self.addresses)
        return next(c for c in self.clients if c.address == owner)

    def start(self, app: App) -> int:
        """As a driver does: topics, claim, all tasks."""
        check_same_application(app.kafka, app.topology)
        ensure_topics(app.kafka.admin(), plan_topics(app.topology), 1, 1)
        epoch = publish(app)
        for p in range(app.topology.partitions):
            claim(self.client(app, p), app, epoch, p)
        return epoch

    def commit(self, app: App, epoch: int, partition: int, value: bytes) -> Marker:
        with closing(FlightHostClient(self.client(app, partition).address, TOKEN)) as client:
            n = client.marker(app.name, partition).batch_number + 1
            with client.exchange(app.name, partition, epoch, n) as exchange:
                keys, values = pa.array([b"k"], pa.binary()), pa.array([value], pa.binary())
                exchange.put("kv", keys, values, pa.array([1], pa.int64()))
                for output in app.topology.outputs:
                    exchange.output(output.topic, keys, values, pa.array([1], pa.int64()))
                return exchange.commit(batch(exchange.marker, n=n).header)

    def value(self, app: App, partition: int) -> list[bytes]:
        _, chunks = self.client(app, partition).scan(app.name, partition, "kv")
        return [v for chunk in chunks for v in chunk.column("value").to_pylist()]

    def directories(self, app: App) -> list[str]:
        return [h.id for h in self.addresses if (self.root / h.id / app.name).exists()]


class Cli:
    """A command against the cluster; it returns what was printed on both streams, or one."""

    def __init__(
        self, command: str, app: App, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._command = command
        self._set = monkeypatch.setenv
        self._set("HOLDFAST_BOOTSTRAP_SERVERS", str(app.kafka.properties["bootstrap.servers"]))
        self._set("HOLDFAST_TOKEN", TOKEN)
        self.hosts(cluster.addresses)

    def hosts(self, addresses: list[HostAddress]) -> None:
        texts = [f"{a.id}={a.host}:{a.flight_port}/{a.http_port}" for a in addresses]
        self._set("HOLDFAST_HOSTS", ",".join(texts))

    def token(self, token: str) -> None:
        self._set("HOLDFAST_TOKEN", token)

    def run(self, *words: str, code: int = 0, answer: str = "") -> Result:
        env = {"COLUMNS": "250"}
        result = CliRunner().invoke(cli, [self._command, *words], input=answer, env=env)
        assert result.exit_code == code, result.output
        return result

    def __call__(self, *words: str, code: int = 0, answer: str = "") -> str:
        return self.run(*words, code=code, answer=answer).output

    def json(self, *words: str, code: int = 0) -> Any:
        return orjson.loads(self.run(*words, "--json", code=code).stdout)


def topics(app: App) -> set[str]:
    return {t for t in app.kafka.admin().list_topics(timeout=15).topics if app.name in t}
