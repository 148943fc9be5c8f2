"""A cleaner that is stopped is seen by the sensor that reads logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_airflow.sensors import ChangelogUnsafeSensor
from state_lib.config import Settings
from state_lib.kafka import Kafka
from state_lib.stack.ports import free_port
from tests.support.brokers import running_broker
from tests.support.hosts import publish
from tests.support.repeated import made, write
from tests.support.sensing import Looks, sensed

APP = "never-cleaned"


def test_a_cleaner_that_is_stopped(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    api: None,  # noqa: ARG001 - connections
) -> None:
    """What is written is no more than the last segment at first, and then it is."""
    stopped = {"log.cleaner.enable": "false"}
    with running_broker(tmp_path / "broker", extra=stopped) as broker:
        kafka = Kafka({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        app = made(kafka, APP, tmp_path)
        publish(app)
        write(app, 2)
        settings = Settings.load(
            home=tmp_path / "home",
            bootstrap_servers=broker.bootstrap,
            replication_factor=1,
            hosts=f"host-1=127.0.0.1:{free_port()}/{free_port()}",
        )
        sensor = ChangelogUnsafeSensor(
            task_id="sense",
            app=APP,
            env=settings.as_environment(),
            poke_interval=0.3,
            hold_s=1.0,
            read_logs=True,
        )
        found = sensed(sensor, Looks(monkeypatch), lambda: write(app, 12), 90)
    assert (found["subject"], found["page"]) == (app.topic("kv"), "compaction")
    assert "were never cleaned" in found["seen"]
    assert "log.cleaner.enable" in found["step"]
    assert found["document"] == "docs/runbook/compaction.md"
