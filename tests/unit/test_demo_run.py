"""What the demo makes of Airflow's answers: a small api-server says what Airflow would."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from rich.console import Console

from state_lib.cli import _demo_loss, _demo_run
from state_lib.cli._demo_loss import follow_restore, lose, show_loss
from state_lib.cli._demo_run import Pipeline, operate, ready
from state_lib.client.airflow import Airflow, Run
from state_lib.config import Settings
from state_lib.errors import ConfigurationError, Unavailable
from state_lib.stack import Stack
from tests.support.small_http import Server, serving

MOST = 100  # `maximum_page_limit`


class ApiServer(Server):
    """Knows DAGs, broken files and runs; hears what is triggered and unpaused."""

    def __init__(self) -> None:
        super().__init__()
        self.dags = ["flights_load", "flights_stream"]
        self.late: list[str] = []
        self.broken: list[str] = []
        self.runs: dict[str, str] = {}
        self.unpaused: list[str] = []

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        url = urlsplit(path)
        asked, said = parse_qs(url.query), dict[str, Any]()
        match method, *url.path.removeprefix("/api/v2").split("/")[1:]:
            case "GET", "auth", "token":
                said = {"access_token": "of-the-test"}
            case "GET", "dags":
                dags = [{"dag_id": dag, "is_paused": True} for dag in self.dags]
                self.dags, self.late = self.dags + self.late, []
                said = page("dags", dags, asked)
            case "GET", "importErrors":
                broken = [{"filename": f, "stack_trace": "a trace"} for f in self.broken]
                said = page("import_errors", broken, asked)
            case "GET", "dags", dag, "dagRuns":
                runs = [run for run, state in self.runs.items() if state in asked["state"]]
                said = {"dag_runs": [self.run(dag, run) for run in runs]}
            case "GET", "dags", dag, "dagRuns", run:
                said = self.run(dag, run)
            case "POST", "dags", dag, "dagRuns":
                run = json.loads(body)["dag_run_id"]
                self.runs[run] = "queued"
                said = self.run(dag, run)
            case "PATCH", "dags", dag:
                self.unpaused.append(dag)
        return 200, said

    def run(self, dag: str, run: str) -> dict[str, str]:
        return {"dag_id": dag, "dag_run_id": run, "state": self.runs[run]}


def page(what: str, every: list[dict[str, Any]], asked: dict[str, list[str]]) -> dict[str, Any]:
    begin, limit = int(asked.get("offset", ["0"])[0]), int(asked.get("limit", ["50"])[0])
    return {what: every[begin : begin + min(limit, MOST)], "total_entries": len(every)}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with serving(ApiServer()) as made:
        yield made


@pytest.fixture
def airflow(server: ApiServer) -> Iterator[Airflow]:
    with Airflow(server.url, "admin", None, patience_s=0) as made:
        yield made


@pytest.fixture
def pipeline(server: ApiServer, airflow: Airflow, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    monkeypatch.setattr(_demo_run, "ASK_AIRFLOW_S", 0)
    server.runs["load"] = "success"
    return Pipeline(Settings.load(), airflow, "flights", Run("flights_load", "load", "success"))


def test_a_run_that_was_there_and_ends_for_a_stop_of_before_is_followed_by_another(
    server: ApiServer, pipeline: Pipeline
) -> None:
    """As after `make down`: the task that waited succeeds once the stack is up again."""
    server.runs["before"] = "running"
    assert pipeline.news(records=1) == ["flights_stream: runs already (before)"]
    server.runs["before"] = "success"
    said = pipeline.news(records=1)
    assert said == ["flights_stream: success", "flights_stream: queued"]
    assert pipeline.stream is not None
    ours = pipeline.stream.id
    assert ours in server.runs
    server.runs[ours] = "success"
    with pytest.raises(Unavailable, match=f"the run {ours} of flights_stream has ended: success"):
        pipeline.news(records=1)


def test_a_run_that_was_there_and_fails_is_told(server: ApiServer, pipeline: Pipeline) -> None:
    server.runs["before"] = "running"
    pipeline.news(records=1)
    server.runs["before"] = "failed"
    with pytest.raises(Unavailable, match="has ended: failed"):
        pipeline.news(records=1)


def test_dags_beyond_the_first_page_are_seen(server: ApiServer, airflow: Airflow) -> None:
    server.dags = [f"other_{n:03}" for n in range(2 * MOST)] + server.dags
    server.broken = [f"other_{n:03}.py" for n in range(MOST + 1)]
    ready(airflow, ("flights_load", "flights_stream"), Settings.load())
    assert server.unpaused == ["flights_load", "flights_stream"]
    assert len(airflow.import_errors()) == MOST + 1


def test_somebody_elses_broken_file_is_no_reason_to_give_up(
    server: ApiServer, airflow: Airflow
) -> None:
    server.dags, server.late = ["flights_load"], ["flights_stream"]
    server.broken = ["/dags/of_another_team.py"]
    ready(airflow, ("flights_load", "flights_stream"), Settings.load())
    assert server.unpaused == ["flights_load", "flights_stream"]


def test_our_own_broken_file_is_named_at_once(server: ApiServer, airflow: Airflow) -> None:
    server.dags = ["flights_load"]
    server.broken = ["/dags/flights_stream.py"]
    with pytest.raises(ConfigurationError, match=r"(?s)flights_stream from.*stream\.py: a trace"):
        ready(airflow, ("flights_load", "flights_stream"), Settings.load())


def test_only_dags_that_there_are_go_on(server: ApiServer, airflow: Airflow) -> None:
    server.dags = ["flights_load", "flights_watch"]
    operate(airflow, ("flights_watch", "flights_verify"))
    assert server.unpaused == ["flights_watch"]


# ---------------------------------------------------------------- the lost disk


class Restoring(ApiServer):
    """Has one run of a restore DAG: what becomes of it look by look, its tasks, its report."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[str] = []
        self.tasks: list[str] = []
        self.report: dict[str, Any] = {}

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        match urlsplit(path).path.split("/dagRuns/waits"):
            case [_, ""]:
                self.runs["waits"] = self.ends.pop(0)
            case [_, "/taskInstances"]:
                done = [{"task_id": t, "state": "success", "try_number": 1} for t in self.tasks]
                return 200, {"task_instances": done}
            case [_, "/taskInstances/report/xcomEntries/return_value"]:
                return 200, {"value": self.report}
        return super().answer(method, path, body)


@pytest.fixture
def restoring() -> Iterator[Restoring]:
    with serving(Restoring()) as made:
        yield made


@pytest.fixture
def patient(restoring: Restoring) -> Iterator[Airflow]:
    with Airflow(restoring.url, "admin", None, patience_s=0) as made:
        yield made


@pytest.fixture
def console(monkeypatch: pytest.MonkeyPatch) -> Console:
    monkeypatch.setattr(_demo_loss, "POLL_S", 0.01)
    return Console(file=io.StringIO(), width=120)


def said(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


RESTORE = Run("flights_restore", "waits", "running")


def test_a_restore_is_told_step_by_step(
    restoring: Restoring, patient: Airflow, console: Console
) -> None:
    restoring.ends, restoring.tasks = ["running", "running", "success"], ["watch", "restore"]
    restoring.report = {"tasks": [], "seconds": 12.5}
    assert follow_restore(console, patient, RESTORE)["seconds"] == 12.5
    assert said(console).count("restored by its host") == 1


def test_a_restore_that_fails_says_what_to_do(
    restoring: Restoring, patient: Airflow, console: Console
) -> None:
    restoring.ends = ["failed"]
    with pytest.raises(Unavailable, match=r"of flights_restore is failed .* 'holdfast restore "):
        follow_restore(console, patient, RESTORE)


def test_a_dag_that_does_not_wait_is_told_before_anything_is_lost(
    server: ApiServer, airflow: Airflow, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_demo_loss, "WAITS_WITHIN_S", 0.1)
    server.dags = ["flights_restore"]
    with pytest.raises(Unavailable, match=r"no run of flights_restore waits.*--no-loss"):
        show_loss(console, Stack(Settings.load()), airflow, "flights")


def test_nothing_is_lost_where_airflow_would_not_bring_it_back(
    server: ApiServer, airflow: Airflow, console: Console
) -> None:
    def told(**flags: Any) -> str:
        show_loss(console, Stack(Settings.load(**flags)), airflow, "flights")
        return said(console)

    assert server.dags == ["flights_load", "flights_stream"]
    assert "left out: there is no DAG flights_restore" in told()
    assert "left out: HOLDFAST_RESTORE_MODE is auto" in told(restore_mode="auto")
    show_loss(console, Stack(Settings.load()), airflow, "flights", wanted=False)
    assert "left out: --no-loss" in said(console)


def test_a_host_that_loses_a_directory_writes_nothing_more(tmp_path: Path) -> None:
    folder = tmp_path / "0"
    folder.mkdir()
    code = "import sys, time\nwhile True: open(sys.argv[1] + '/x', 'a').close(); time.sleep(0.01)"
    with subprocess.Popen([sys.executable, "-c", code, str(folder)]) as process:
        lose(folder, process.pid)
    assert process.returncode == -signal.SIGKILL
    assert not folder.exists()
