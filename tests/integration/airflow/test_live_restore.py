"""A lost store comes back by all of Airflow's processes: nobody runs anything, nobody is asked."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from state_lib.client.airflow import Airflow, Run
from state_lib.client.http import HostHttp
from state_lib.errors import HoldfastError
from state_lib.stack import Stack
from tests.support.airflow_stack import WITHIN_S, client_of, settings_in
from tests.support.apps import App
from tests.support.live_task import filled
from tests.support.waiting import SLOWNESS, until

pytestmark = pytest.mark.full
APP, DAG_ID = "live", "live_restore"
DAGS = f"""
from holdfast_airflow.dags import restore_dag

dag = restore_dag("{APP}")
"""


@pytest.fixture(scope="module")
def armed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that arms failpoints of the hosts."""
    path = tmp_path_factory.mktemp("armed") / "failpoints"
    path.touch()
    return path


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, armed: Path) -> Iterator[Stack]:
    home = tmp_path_factory.mktemp("live")
    (home / "dags").mkdir()
    (home / "dags" / f"{DAG_ID}.py").write_text(DAGS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_FAILPOINTS", f"@{armed}")
        made = Stack(settings_in(home, kafka_heap="384m"))
        try:
            made.up(timeout_s=WITHIN_S * SLOWNESS)
            yield made
        finally:
            made.down()


@pytest.fixture(scope="module")
def app(stack: Stack) -> App:
    """One task with something in it."""
    return filled(stack, APP)


@pytest.fixture
def airflow(stack: Stack) -> Iterator[Airflow]:
    with client_of(stack.settings) as made:
        yield made


def state(stack: Stack) -> str | None:
    (address,) = stack.settings.host_addresses
    http = HostHttp(address, None, 5.0)
    try:
        (task,) = http.get(f"/v1/apps/{APP}/stores", patient=False)["tasks"]
    except HoldfastError:
        return None
    finally:
        http.close()
    return str(task["state"])


def lose(stack: Stack) -> None:
    """The directory, with its host killed; the supervisor starts the host again."""
    status = stack.status()
    pid = status["host-1"].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    shutil.rmtree(stack.settings.home / "state" / "host-1" / APP / "0")


def waiting(airflow: Airflow) -> Run | None:
    """The run whose watch waits in the triggerer."""
    for run in airflow.active_runs(DAG_ID) if DAG_ID in airflow.dags() else []:
        if {t.id: t.state for t in airflow.tasks(run)}.get("watch") == "deferred":
            return run
    return None


def report(airflow: Airflow, run: Run) -> dict[str, object]:
    found: dict[str, object] = airflow.result(run, "report")
    return found


def test_a_lost_store_comes_back(stack: Stack, app: App, airflow: Airflow) -> None:
    del app
    run = until(lambda: waiting(airflow), WITHIN_S, "waiting, unpaused by nobody")
    lose(stack)
    until(lambda: airflow.run(run.dag, run.id).state == "success", WITHIN_S)
    found = report(airflow, run)
    assert found["verified"]
    print(f"sensed to verified: {found['seconds']} s")  # noqa: T201
    assert float(str(found["seconds"])) < 60 * SLOWNESS
    assert state(stack) == "open"
    again = until(lambda: waiting(airflow), WITHIN_S)
    assert again.id != run.id, "the next one waits"


def test_the_triggerer_is_killed_in_the_middle(
    stack: Stack, app: App, airflow: Airflow, armed: Path
) -> None:
    del app
    run = until(lambda: waiting(airflow), WITHIN_S)
    armed.write_text("restore.before_checkpoint=sleep:20")
    lose(stack)
    until(lambda: state(stack) == "restoring", WITHIN_S)
    armed.write_text("")
    pid = stack.status()["airflow-triggerer"].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: airflow.run(run.dag, run.id).state == "success", WITHIN_S)
    assert report(airflow, run)["verified"]
    log = stack.paths.log("host-1").read_text().splitlines()
    starts = [i for i, line in enumerate(log) if '"host is up"' in line]
    assert sum('"rebuilt"' in line for line in log[starts[-1] :]) == 1
