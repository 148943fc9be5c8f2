"""What the demo makes of Airflow's answers: a small api-server says what Airflow would."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from state_lib.cli import _demo_run
from state_lib.cli._demo_run import Pipeline, ready
from state_lib.client.airflow import Airflow, Run
from state_lib.config import Settings
from state_lib.errors import ConfigurationError, Unavailable
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
