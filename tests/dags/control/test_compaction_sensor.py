"""The sensor of a cleaner that stands: on a broker of which it really does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from holdfast_airflow.sensors import CompactionStuckSensor
from state_lib.config import Settings
from state_lib.kafka import Kafka
from state_lib.stack.ports import free_port
from tests.support.brokers import running_broker
from tests.support.hosts import publish
from tests.support.repeated import made, write
from tests.support.sensing import Looks, sensed


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch, api: None) -> Looks:  # noqa: ARG001 - connections
    return Looks(monkeypatch)


def test_a_cleaner_that_is_off(looks: Looks, tmp_path: Path) -> None:
    with running_broker(tmp_path / "broker", extra={"log.cleaner.enable": "false"}) as broker:
        app = made(
            Kafka({"bootstrap.servers": broker.bootstrap, "log_level": 0}), "dirty", tmp_path
        )
        app.topology = replace(app.topology, sources=())
        publish(app)
        write(app, 2)
        settings = Settings.load(
            home=tmp_path / "home",
            bootstrap_servers=broker.bootstrap,
            hosts=f"host-1=127.0.0.1:{free_port()}/{free_port()}",
        )
        sensor = CompactionStuckSensor(
            task_id="sense",
            app="dirty",
            env=settings.as_environment(),
            poke_interval=0.3,
            hold_s=0.5,
        )
        found = sensed(sensor, looks, lambda: write(app, 12))
    assert (found["name"], found["subject"]) == ("compaction-stuck", app.topic("kv"))
    assert found["document"] == "docs/runbook/compaction.md"
    assert "were never cleaned" in found["seen"]
