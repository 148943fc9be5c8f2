"""The watch DAG under all of Airflow's processes: what is told of a host that is killed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from state_lib.client.airflow import Airflow
from state_lib.stack import Stack, supervisor
from state_lib.stack.ports import free_port
from tests.support.airflow_stack import WITHIN_S, client_of, settings_in
from tests.support.live_task import filled
from tests.support.waiting import SLOWNESS, until

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]
APP, DAG_ID, HOST, TRIGGERER = "attended", "attended_watch", "host-1", "airflow-triggerer"
DAGS = f"""
import json
from pathlib import Path
from airflow.sdk import BaseNotifier
from holdfast_airflow.dags import watch_dag

class FileNotifier(BaseNotifier):
    def notify(self, context):
        with Path({{told!r}}).open("a") as file:
            file.write(json.dumps(context["incident"]) + "\\n")

dag = watch_dag("{APP}", notifiers=[FileNotifier()])
"""


class Watched:
    """A stack whose host is killed, and what the DAG says of it."""

    def __init__(self, stack: Stack, airflow: Airflow, told: Path) -> None:
        self.stack, self.airflow, self._told = stack, airflow, told

    def told(self) -> list[str]:
        """Of hosts that are down, in order."""
        lines = self._told.read_text().splitlines() if self._told.exists() else []
        found = [one for one in map(json.loads, lines) if one["condition"] == "host-down"]
        return [f"{one['kind']} {one['subject']}" for one in found]

    def waits(self) -> dict[str, Any] | None:
        """The task that watches hosts, if it and all others wait in the triggerer."""
        for run in self.airflow.active_runs(DAG_ID):
            path = f"/dags/{run.dag}/dagRuns/{run.id}/taskInstances"
            tasks: list[dict[str, Any]] = self.airflow._call("GET", path)["task_instances"]
            if {one["state"] for one in tasks} == {"deferred"}:
                return next(one for one in tasks if one["task_id"] == "host_down")
        return None

    def watcher(self) -> int | None:
        """Number of the triggerer that has the task's trigger."""
        task = self.waits()
        job = None if task is None else task["triggerer_job"]
        return None if job is None else int(job["id"])

    def kill(self, service: str) -> None:
        """SIGKILL; the supervisor starts it again."""
        pid = self.stack.status()[service].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    def take_down(self) -> None:
        """SIGKILL the host, and let nobody start it again."""
        client = supervisor.Client(self.stack.paths)

        def is_stopped() -> bool:  # who has just exited cannot be stopped, and is started again
            client.stop(HOST)
            return self.stack.status()[HOST].state == "stopped"

        self.kill(HOST)
        until(is_stopped, WITHIN_S, "stopped")

    def bring_back(self) -> None:
        """Start the host, and wait until its task is open."""
        self.stack.up(only=[HOST], timeout_s=WITHIN_S * SLOWNESS)

    def pressed(self, **given: object) -> tuple[bool, str]:
        """What the button Test of a connection's page says; it waits 15 s for Kafka."""
        asked = {"connection_id": "ours", "conn_type": "holdfast", **given}
        with client_of(self.stack.settings, answer_s=60 * SLOWNESS) as airflow:
            said: dict[str, Any] = airflow._call("POST", "/connections/test", json=asked)
        return said["status"], said["message"]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    home = tmp_path_factory.mktemp("attended")
    (home / "dags").mkdir()
    told = home / "told.jsonl"
    (home / "dags" / f"{DAG_ID}.py").write_text(DAGS.format(told=str(told)))
    stack = Stack(settings_in(home, kafka_heap="384m"))
    try:
        stack.up(timeout_s=WITHIN_S * SLOWNESS)
        filled(stack, APP)
        with client_of(stack.settings) as airflow:
            until(lambda: DAG_ID in airflow.dags(), WITHIN_S)
            airflow.unpause(DAG_ID)
            yield Watched(stack, airflow, told)
    finally:
        stack.down()


def test_the_button_that_tests_a_connection(watched: Watched) -> None:
    settings = watched.stack.settings
    name, port = settings.bootstrap_servers.split(":")
    works, said = watched.pressed(host=name, port=int(port))
    assert works, said
    assert said == f"Kafka and 1 hosts answer. Applications: {APP}"
    works, said = watched.pressed(host=f"127.0.0.1:{free_port()}")
    assert not works
    assert "Kafka at 127.0.0.1" in said
    away = f"host-1=127.0.0.1:{free_port()}/{free_port()}"
    works, said = watched.pressed(host=name, port=int(port), extra=json.dumps({"hosts": away}))
    assert not works
    assert said.startswith("Kafka answers; host-1: ")


def test_a_killed_host_is_told_once_and_its_recovery_once(watched: Watched) -> None:
    """Although the triggerer that had seen it go is not the one that sees it come back."""
    until(watched.watcher, WITHIN_S, "watched")
    assert watched.told() == []
    watched.take_down()
    until(watched.told, WITHIN_S, "told")
    assert watched.told() == [f"alarm {HOST}"]

    before = until(watched.watcher, WITHIN_S, "watched again")
    watched.kill(TRIGGERER)
    until(lambda: watched.watcher() not in (None, before), WITHIN_S, "another triggerer's")
    watched.bring_back()
    until(lambda: len(watched.told()) > 1, WITHIN_S, "told of its return")
    assert watched.told() == [f"alarm {HOST}", f"recovery {HOST}"]

    until(watched.watcher, WITHIN_S, "watched once more")
    watched.take_down()
    until(lambda: len(watched.told()) > 2, WITHIN_S, "told of the next time")
    watched.bring_back()
    until(lambda: len(watched.told()) > 3, WITHIN_S, "told of its end")
    assert watched.told() == [f"alarm {HOST}", f"recovery {HOST}"] * 2
