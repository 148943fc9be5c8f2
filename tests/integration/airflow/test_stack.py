"""Airflow in the local stack: real processes on SQLite, one stack for all of these tests."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from state_lib.cli._demo_run import ready
from state_lib.client.airflow import Airflow
from state_lib.errors import ConfigurationError, NotFound, PortInUse, Unauthorized
from state_lib.stack import Stack
from state_lib.stack.airflow import API_SERVER, AirflowHome, prepare
from state_lib.stack.record import Record
from tests.support.airflow_stack import (
    SERVICES,
    WITHIN_S,
    client_of,
    look_around,
    running,
    settings_in,
)
from tests.support.waiting import until

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("airflow")) as made:
        yield made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the task and the driver that it launches leave their marks."""
    return tmp_path_factory.mktemp("seen")


@pytest.fixture
def airflow(stack: Stack) -> Iterator[Airflow]:
    with client_of(stack.settings) as made:
        yield made


def pids(stack: Stack) -> dict[str, int | None]:
    status = stack.status()
    return {name: status[name].pid for name in SERVICES}


def marked(stack: Stack) -> list[psutil.Process]:
    record = Record.read(stack.paths.record)
    assert record is not None
    return record.processes()


def strays(stack: Stack) -> list[int]:
    """Ours in the session of a service that is gone."""
    found = []
    for process in marked(stack):
        with contextlib.suppress(ProcessLookupError):
            if not psutil.pid_exists(os.getsid(process.pid)):
                found.append(process.pid)
    return found


def healthy(stack: Stack) -> bool:
    status = stack.status()
    return all(status[name].health == "healthy" for name in SERVICES)


def test_a_task_runs_with_the_settings_of_the_stack(
    stack: Stack, airflow: Airflow, folder: Path
) -> None:
    run = look_around(airflow, folder)
    assert airflow.import_errors() == {}
    assert [(task.id, task.state) for task in airflow.tasks(run)] == [("look", "success")]
    assert (folder / "port").read_text() == str(stack.settings.kafka_port)
    until((folder / "ready").exists)
    assert airflow.active_runs("look_around") == []


def test_who_has_no_password_stays_outside(stack: Stack) -> None:
    url = f"http://127.0.0.1:{stack.settings.airflow_port}"
    assert httpx.get(f"{url}/api/v2/dags", trust_env=False).status_code == 401
    with Airflow(url, "admin", "a guess") as guess, pytest.raises(Unauthorized):
        guess.dags()
    with Airflow(url, "admin", None) as anonymous, pytest.raises(Unauthorized):
        anonymous.dags()


def test_the_password_is_in_no_log(stack: Stack) -> None:
    password = AirflowHome(stack.settings.airflow_home).password()
    assert [log for log in stack.paths.logs.iterdir() if password in log.read_text()] == []


def test_nothing_listens_beyond_this_machine(stack: Stack) -> None:
    ours = {process.pid for process in marked(stack)}
    assert len(ours) > len(SERVICES) + 1, "workers too carry the mark"
    listening = {
        tuple(connection.laddr)
        for connection in psutil.net_connections("inet")
        if connection.pid in ours and connection.status == psutil.CONN_LISTEN
    }
    assert listening == {("127.0.0.1", stack.settings.airflow_port)}
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2", stack.settings.airflow_port), 5)


def test_a_connection_that_a_person_changed_stays_changed(stack: Stack, airflow: Airflow) -> None:
    path = "/connections/spark_default"
    seen = airflow._call("GET", path)
    assert (seen["conn_type"], seen["host"]) == ("spark", stack.settings.spark_master)
    body = {"connection_id": "spark_default", "conn_type": "spark", "host": "spark://else:7077"}
    airflow._call("PATCH", path, json=body)
    stamp = AirflowHome(stack.settings.airflow_home).prepared
    stamp.unlink()  # as an upgrade of Airflow would have it: prepared anew
    prepare(stack.settings)
    assert stamp.exists()
    assert airflow._call("GET", path)["host"] == "spark://else:7077"


def test_unknown_dags_are_named(airflow: Airflow) -> None:
    with pytest.raises(NotFound, match="nosuch"):
        airflow.unpause("nosuch")


def test_a_dag_file_that_cannot_be_imported_is_named(stack: Stack, airflow: Airflow) -> None:
    broken = stack.settings.dags_dir / "nosuch_load.py"
    broken.write_text("from airflow.sdk import dag_of_no_kind\n")
    until(lambda: airflow.import_errors() != {}, WITHIN_S)
    with pytest.raises(ConfigurationError, match=r"(?s)nosuch_load\.py.*dag_of_no_kind") as missing:
        ready(airflow, ("look_around", "nosuch_load"), stack.settings)
    assert "nosuch_load from" in missing.value.message
    broken.unlink()


def test_a_locked_database_is_sat_out(stack: Stack, airflow: Airflow) -> None:
    """For longer than the five seconds after which SQLite gives up by default."""
    before = pids(stack)
    file = AirflowHome(stack.settings.airflow_home).database
    lock = sqlite3.connect(file, isolation_level=None, timeout=60)
    try:
        lock.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            sqlite3.connect(file, timeout=8).execute("DELETE FROM variable")
        lock.execute("ROLLBACK")
    finally:
        lock.close()
    airflow.unpause("look_around")
    until(lambda: healthy(stack), WITHIN_S)
    assert pids(stack) == before


def test_killed_components_come_back(stack: Stack, airflow: Airflow, folder: Path) -> None:
    driver = psutil.Process(int((folder / "pid").read_text()))
    before = pids(stack)
    for pid in before.values():
        assert pid
        os.kill(pid, signal.SIGKILL)
    assert "look_around" in airflow.dags(), "the client waits for the api-server"
    until(lambda: healthy(stack), WITHIN_S)
    after = pids(stack)
    assert all(after[name] != before[name] for name in SERVICES)
    until(lambda: strays(stack) == [], WITHIN_S)  # such as workers of a scheduler that is gone
    assert driver.is_running(), "what a task has launched is not Airflow's to end"


def test_down_leaves_nothing_behind(stack: Stack, folder: Path) -> None:
    """Last of those that need the stack."""
    record = Record.read(stack.paths.record)
    assert record is not None
    assert not (folder / "edge").exists()
    stack.down()
    assert (folder / "edge").exists(), "a driver is asked to end, and not killed"
    assert record.processes() == []


def test_a_taken_port_is_named_before_anything_starts(tmp_path: Path) -> None:
    stack = Stack(settings_in(tmp_path))
    with (
        socket.create_server(("127.0.0.1", stack.settings.airflow_port)),
        pytest.raises(PortInUse, match="HOLDFAST_AIRFLOW_PORT"),
    ):
        stack.up(only=[API_SERVER])
    assert stack.status().supervisor_pid is None
