"""A user's job as a process of its own: what it says when it ends before it streams."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from state_lib.changelog.admin import _await
from state_lib.changelog.claims import newest_claim
from state_lib.changelog.topics import TopicPlan, topology_topic
from state_lib.config import Settings
from state_lib.driver.claims import write_claim
from state_lib.drivers.control import ask_to_stop
from state_lib.drivers.events import Event
from state_lib.drivers.last_words import end_in_log
from state_lib.drivers.look import Looker, observe
from state_lib.drivers.process import DriverProcess, launch
from state_lib.drivers.sight import Sight
from state_lib.drivers.supervision import Supervision
from state_lib.exits import EXIT_REFUSED
from state_lib.kafka import Kafka, describe
from state_lib.stack.broker import LocalBroker
from state_lib.stack.ports import free_port
from tests.integration.conftest import MakeApp
from tests.support.apps import App, claimed
from tests.support.lost import deleted
from tests.support.waiting import deadline_in, until

JOB = """
import os
from state_lib import Application

app = Application(os.environ["JOB_APP"], partitions=1)
key = os.environ.get("JOB_KEY", "value")
app.stream(os.environ["JOB_APP"] + "-lines", format="text").groupBy(key).count("counts")
app.run()
"""
Start = Callable[..., DriverProcess]


@pytest.fixture
def settings(broker: LocalBroker, tmp_path: Path) -> Settings:
    """No host listens at the address."""
    return Settings.load(
        home=tmp_path,
        bootstrap_servers=broker.bootstrap,
        replication_factor=1,
        hosts=f"host-1=127.0.0.1:{free_port()}/{free_port()}",
        spark_master="local[1]",
        exchange_timeout_s=600,
    )


@pytest.fixture
def start(settings: Settings, kafka: Kafka, tmp_path: Path) -> Iterator[Start]:
    """Launches the job under an id, with more variables if they are given."""
    job = tmp_path / "job.py"
    job.write_text(JOB)
    started: list[DriverProcess] = []

    def start(app: str, **more: str) -> DriverProcess:
        lines = f"{app}-lines"
        with contextlib.suppress(KafkaException):  # of the start before
            kafka.admin().create_topics([NewTopic(lines, 1, 1)])[lines].result()
        _await(kafka.admin(), [TopicPlan(lines, 1)])
        environment = {**os.environ, **settings.as_environment(), "JOB_APP": app, **more}
        command = [sys.executable, str(job)]
        started.append(launch(app, command, env=environment, log=tmp_path / "log"))
        return started[-1]

    yield start
    for process in started:
        process.end(0)


def supervised(settings: Settings, app: str, process: DriverProcess) -> tuple[list[Event], Sight]:
    """What its supervisor tells until that is over, and the last look."""
    looker, supervision = Looker(settings, app), Supervision(app, process.id, time.time())
    told: list[Event] = []
    deadline = deadline_in(90)
    while not supervision.over:
        assert time.monotonic() < deadline, process.last_lines()
        sight, alive = observe(looker, process)
        said = () if alive else process.last_lines()
        told += supervision.feed(sight, process=alive, now=time.time(), said=said)
        time.sleep(0.2)
    last = looker.look()
    looker.close()
    return told, last


def test_a_job_under_the_id_of_another_is_given_up_at_once(
    make_app: MakeApp, start: Start, settings: Settings
) -> None:
    """It never joins its group, and says nevertheless that starting it again cannot help."""
    app = make_app()
    epoch = write_claim(app.kafka, app.topology)
    told, last = supervised(settings, app.name, start(app.name))
    assert [e.name for e in told] == ["crashed", "gave_up"], [e.text for e in told]
    assert f"application '{app.name}' exists already" in told[-1].text
    assert "starting it again cannot help" in told[-1].text
    assert last.epoch == epoch, "whose it is has not changed"


def test_a_job_that_does_not_compile_is_given_up_at_once(
    name: str, start: Start, settings: Settings
) -> None:
    """It says nothing of ours, and ends with Python's own exit code."""
    (settings.home / "job.py").write_text(f"{JOB}app.run(\n")
    told, last = supervised(settings, name, start(name))
    assert [e.name for e in told] == ["crashed", "gave_up"], [e.text for e in told]
    assert "SyntaxError: '(' was never closed" in told[-1].text
    assert "starting it again cannot help" in told[-1].text
    assert (last.epoch, last.ended) == (-1, ())


def test_a_job_whose_topology_topic_was_deleted_is_refused(
    name: str, kafka: Kafka, start: Start, settings: Settings
) -> None:
    """The one that runs ends too; with the exit code of what must not be started again."""
    first = start(name)
    claim = until(lambda: newest_claim(kafka, name), 90, "claimed")
    app = App(kafka, claim.topology, settings.home)
    claimed(app.opened(), claim.epoch)
    app.close()
    deleted(app, topology_topic(name))
    until(lambda: not first.alive(), 90, "ended")
    end = end_in_log(first.last_lines(), first.id)
    assert end is not None
    assert not end.retry
    assert f"holdfast repair topology {name}" in end.why
    environment = {**os.environ, **settings.as_environment(), "JOB_APP": name}
    command = [sys.executable, str(settings.home / "job.py")]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, timeout=90)
    assert done.returncode == EXIT_REFUSED, done.stderr
    assert not describe(kafka.admin(), [topology_topic(name)]), "nothing was written"


def test_a_typo_is_met_before_anything_is_claimed(name: str, kafka: Kafka, start: Start) -> None:
    process = start(name, JOB_KEY="vlaue")
    until(lambda: not process.alive(), 90, "ended")
    assert newest_claim(kafka, name) is None, "a driver of before would have been ended"
    said = "\n".join(process.last_lines())
    assert "step 1, groupBy cannot be computed" in said
    assert "`vlaue`" in said
    assert "Did you mean one of the following? [`value`" in said


def test_a_stop_is_heeded_while_no_host_can_be_reached(
    name: str, kafka: Kafka, start: Start, settings: Settings
) -> None:
    process = start(name)
    until(lambda: newest_claim(kafka, name), 90, "claimed")
    ask_to_stop(kafka, name, why="no host will ever come")
    until(lambda: not process.alive(), 90, "ended")
    looker = Looker(settings, name)
    end = looker.look().end_of(process.id)
    looker.close()
    assert end is not None
    assert (end.how, end.why) == ("stopped", "no host will ever come")


def test_a_stop_between_launch_and_claim_is_heeded(
    name: str, kafka: Kafka, start: Start, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launcher says from where on; the job itself begins to listen seconds later."""
    first = start(name)
    claim = until(lambda: newest_claim(kafka, name), 90, "claimed")
    first.end(0)
    looker = Looker(settings, name)
    monkeypatch.setenv("HOLDFAST_DRIVER_HEEDS_FROM", str(looker.look().heard))
    ask_to_stop(kafka, name, why="already")
    second = start(name)
    until(lambda: not second.alive(), 90, "ended")
    end = looker.look().end_of(second.id)
    assert newest_claim(kafka, name) == claim, "nothing is claimed any more"
    looker.close()
    assert end is not None
    assert (end.how, end.why) == ("stopped", "already")


def test_a_driver_that_was_superseded_while_it_could_not_look_does_not_claim_again(
    name: str, kafka: Kafka, start: Start, settings: Settings
) -> None:
    """As one that was frozen: its stream fails, and to start it again would be a new claim."""
    process = start(name, HOLDFAST_EXCHANGE_TIMEOUT_S="3")
    claim = until(lambda: newest_claim(kafka, name), 90, "claimed")
    os.kill(process.pid, signal.SIGSTOP)
    epoch = write_claim(kafka, claim.topology)
    time.sleep(4)  # frozen for longer than it waits for a host
    os.kill(process.pid, signal.SIGCONT)
    until(lambda: not process.alive(), 90, "ended")
    looker = Looker(settings, name)
    sight = looker.look()
    looker.close()
    end = sight.end_of(process.id)
    assert end is not None
    assert (end.how, end.retry) == ("superseded", False)
    assert sight.epoch == epoch, "it would have ended the driver that took over"
