"""The local stack with a real broker: restarts, taken ports, and nothing left behind."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from state_lib.config import Settings
from state_lib.errors import ConfigurationError, PortInUse, Unavailable
from state_lib.stack import LocalBroker, Stack, probes
from state_lib.stack.ports import free_port
from state_lib.stack.record import Record
from tests.support.brokers import paused
from tests.support.waiting import SLOWNESS, deadline_in


def settings_in(home: Path) -> Settings:
    """Settings of a home on free ports."""
    hosts = f"host-1=127.0.0.1:{free_port()}/{free_port()}"
    return Settings.load(
        home=home,
        kafka_port=free_port(),
        kafka_controller_port=free_port(),
        kafka_heap="384m",
        hosts=hosts,
        airflow=False,
    )


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """A stack that does not run; ended after the test."""
    made = Stack(settings_in(tmp_path / "home"))
    try:
        yield made
    finally:
        made.down()


def eventually(question: Callable[[], bool], within_s: float = 60.0) -> None:
    deadline = deadline_in(within_s)
    while not question():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)


def test_others_start_beside_a_host_that_is_not_ready(tmp_path: Path) -> None:
    """As one with a task that cannot be opened: Airflow would not be there to mend it."""
    ports = [free_port() for _ in range(4)]
    hosts = "host-1=127.0.0.1:{}/{},host-2=127.0.0.1:{}/{}".format(*ports)
    stack = Stack(settings_in(tmp_path / "home").model_copy(update={"hosts": hosts}))
    kafka, first, second = stack.programs
    never_ready = replace(first, healthy=lambda _: False)
    stack.programs = (kafka, never_ready, replace(second, priority=first.priority + 1))
    try:
        stack.up(only=["kafka"])
        with pytest.raises(Unavailable, match="all else that was asked for is started"):
            stack.up(timeout_s=12 * SLOWNESS)
        up = stack.status()
        assert (up["host-1"].health, up["host-2"].health) == ("unhealthy", "healthy")
    finally:
        stack.down()


def test_life_of_a_stack(stack: Stack) -> None:
    phases: list[tuple[str, str]] = []
    up = stack.up(only=["kafka"], report=lambda *seen: phases.append(seen))
    kafka = up["kafka"]
    assert (kafka.state, kafka.health) == ("running", "healthy")
    assert kafka.pid is not None
    assert up["host-1"].health == "down"
    assert ("kafka", "healthy") in phases
    assert os.getsid(kafka.pid) == kafka.pid, "its own session"
    assert up.supervisor_pid is not None
    assert os.getsid(up.supervisor_pid) not in {os.getsid(0), kafka.pid}

    again = stack.up(only=["kafka"])
    assert again["kafka"].pid == kafka.pid, "up when up does nothing"

    os.kill(kafka.pid, signal.SIGKILL)
    eventually(lambda: stack.status()["kafka"].health == "healthy")
    assert stack.status()["kafka"].pid != kafka.pid

    record = Record.read(stack.paths.record)
    assert record is not None
    assert len(record.processes()) == 2
    assert len(stack.down()) == 2
    assert record.processes() == []
    assert not probes.listening("127.0.0.1", stack.settings.kafka_port)
    assert stack.down() == [], "down when down does nothing"


def test_services_left_by_a_killed_supervisor_are_ended(stack: Stack) -> None:
    up = stack.up(only=["kafka"])
    assert up.supervisor_pid is not None
    assert up["kafka"].pid is not None
    os.kill(up.supervisor_pid, signal.SIGKILL)
    eventually(lambda: stack.status().supervisor_pid is None)
    assert psutil.pid_exists(up["kafka"].pid)
    again = stack.up(only=["kafka"])  # and its port is not "taken"
    assert again["kafka"].health == "healthy"
    assert again["kafka"].pid != up["kafka"].pid
    eventually(lambda: not is_running(up["kafka"].pid))


def is_running(pid: int | None) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_outlives_its_terminal(stack: Stack) -> None:
    """`up` in another session that gets the hang-up a closing terminal sends."""
    code = (
        "import os, signal, sys; os.setsid(); from state_lib.cli import app\n"
        "try: app(['up', '--only', 'kafka'], standalone_mode=False)\n"
        "finally: signal.signal(signal.SIGHUP, signal.SIG_IGN); os.killpg(0, signal.SIGHUP)\n"
    )
    environment = {**os.environ, **stack.settings.as_environment()}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True)
    assert stack.status()["kafka"].health == "healthy"


def test_a_taken_port_is_refused_before_anything_starts(stack: Stack) -> None:
    with (
        socket.create_server(("127.0.0.1", stack.settings.kafka_port)),
        pytest.raises(PortInUse, match="HOLDFAST_KAFKA_PORT"),
    ):
        stack.up(only=["kafka"])
    assert stack.status().supervisor_pid is None


def test_a_service_that_cannot_start_shows_its_log(stack: Stack) -> None:
    broken = Stack(stack.settings.model_copy(update={"kafka_heap": "1"}))
    with pytest.raises(Unavailable) as failed:
        broken.up(only=["kafka"], timeout_s=60)
    assert "heap size" in failed.value.message
    assert str(stack.paths.log("kafka")) in failed.value.message


def test_other_ports_under_a_running_stack_are_refused(stack: Stack) -> None:
    stack.up(only=["kafka"])  # a broker that has just begun to start takes 20 s to stop
    other = Stack(stack.settings.model_copy(update={"kafka_controller_port": free_port()}))
    with pytest.raises(ConfigurationError, match="holdfast down"):
        other.up(only=["kafka"])


def test_a_local_broker_can_be_killed_paused_and_started_again(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "broker", extra={"log.retention.ms": "-1"}) as broker:
        pids = [broker.pid]
        broker.kill()
        assert not probes.kafka(broker.bootstrap)
        pids += [broker.pid, broker.start().pid]
        assert pids[1] is None
        assert len(set(pids)) == 3
        assert probes.kafka(broker.bootstrap)
        with paused(broker):
            assert not probes.kafka(broker.bootstrap)
        eventually(lambda: probes.kafka(broker.bootstrap))
    assert broker.pid is None
