"""A changelog from which brokers delete: its driver is started once, and says what to do."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic
from typer.testing import CliRunner

from state_lib.changelog.admin import set_topic_config
from state_lib.cli import app as command
from state_lib.config import Settings
from state_lib.driver.claims import write_claim
from state_lib.drivers import process as processes
from state_lib.drivers.events import Event
from state_lib.drivers.look import Looker, observe
from state_lib.drivers.process import launch
from state_lib.drivers.supervision import Supervision
from state_lib.exits import EXIT_REFUSED
from state_lib.kafka import Kafka
from state_lib.stack.broker import LocalBroker
from state_lib.stack.ports import free_port
from tests.support.apps import App
from tests.support.declared import counting
from tests.support.environment import set_environment
from tests.support.waiting import deadline_in

JOB = """
import os
from state_lib import Application

app = Application(os.environ["JOB_APP"], partitions=1)
app.stream(os.environ["JOB_APP"] + "-lines", format="text").groupBy("value").count("counts")
app.run()
"""


@pytest.fixture
def settings(broker: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """No host listens at the address."""
    made = Settings.load(
        home=tmp_path,
        bootstrap_servers=broker.bootstrap,
        replication_factor=1,
        hosts=f"host-1=127.0.0.1:{free_port()}/{free_port()}",
        spark_master="local[1]",
    )
    set_environment(monkeypatch, made)
    monkeypatch.chdir(tmp_path)
    return made


@pytest.mark.full  # Spark starts for it
def test_it_is_given_up_at_once_and_told(
    name: str, kafka: Kafka, settings: Settings, tmp_path: Path
) -> None:
    """Somebody changed it after the application had run."""
    app = application(name, kafka, tmp_path)
    changelog = app.topic("counts")
    set_topic_config(kafka.admin(), changelog, "cleanup.policy", "delete")
    told, code = supervised(settings, name)
    assert [e.name for e in told] == ["crashed", "gave_up"], [e.text for e in told]
    assert "starting it again cannot help" in told[-1].text
    assert code == EXIT_REFUSED, "which no supervisor of processes starts again, either"

    shown = CliRunner().invoke(command, ["status", "--json"]).stdout
    (stream,) = (s for s in json.loads(shown)["streams"] if s["app"] == name)
    assert stream["state"] == "failed"
    for word in (changelog, "cleanup.policy", "delete", "compact"):
        assert word in stream["why"], stream["why"]
    assert f"correct that, then start the job of {name}" in stream["next_step"]


def application(name: str, kafka: Kafka, root: Path) -> App:
    """One that has run: as the job declares it."""
    lines = f"{name}-lines"
    job = counting(name, {lines: "counts"}, 1)
    app = App(kafka, job.topology, root)
    kafka.admin().create_topics([NewTopic(lines, 1, 1)])[lines].result()
    app.create()
    write_claim(kafka, job.topology)
    return app


def supervised(settings: Settings, name: str) -> tuple[list[Event], int | None]:
    """What a supervisor tells of the job until it is over, and the exit code."""
    job = settings.home / "job.py"
    job.write_text(JOB)
    environment = {**os.environ, "JOB_APP": name}
    process = launch(name, [sys.executable, str(job)], env=environment, log=settings.home / "log")
    looker, told = Looker(settings, name), list[Event]()
    supervision = Supervision(name, process.id, time.time())
    deadline = deadline_in(90)
    try:
        while not supervision.over:
            assert time.monotonic() < deadline, process.last_lines()
            sight, alive = observe(looker, process)
            told += supervision.feed(sight, process=alive, now=time.time())
            time.sleep(0.2)
        return told, processes._launched[process.id].poll()
    finally:
        looker.close()
        process.end(0)
