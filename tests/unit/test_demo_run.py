"""What the demo makes of Airflow's answers: a small api-server says what Airflow would."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from state_lib.cli import _demo_run
from state_lib.cli._demo_run import Pipeline, ready
from state_lib.client.airflow import Airflow, Run
from state_lib.config import Settings
from state_lib.errors import ConfigurationError, Unavailable

MOST = 100  # `maximum_page_limit`


class ApiServer(ThreadingHTTPServer):
    """Knows DAGs, broken files and runs; hears what is triggered and unpaused."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.dags = ["flights_load", "flights_stream"]
        self.late: list[str] = []
        self.broken: list[str] = []
        self.runs: dict[str, str] = {}
        self.unpaused: list[str] = []


class Answer(BaseHTTPRequestHandler):
    server: ApiServer

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        match url.path.removeprefix("/api/v2").split("/")[1:]:
            case ["auth", "token"]:
                self.say({"access_token": "of-the-test"})
            case ["dags"]:
                dags = [{"dag_id": dag, "is_paused": True} for dag in self.server.dags]
                self.server.dags, self.server.late = self.server.dags + self.server.late, []
                self.page("dags", dags)
            case ["importErrors"]:
                broken = [{"filename": f, "stack_trace": "a trace"} for f in self.server.broken]
                self.page("import_errors", broken)
            case ["dags", dag, "dagRuns"]:
                wanted = parse_qs(url.query)["state"]
                runs = [run for run, state in self.server.runs.items() if state in wanted]
                self.say({"dag_runs": [self.run(dag, run) for run in runs]})
            case ["dags", dag, "dagRuns", run]:
                self.say(self.run(dag, run))

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.runs[asked["dag_run_id"]] = "queued"
        self.say(self.run(self.path.split("/")[-2], asked["dag_run_id"]))

    def do_PATCH(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.unpaused.append(self.path.split("/")[-1])
        self.say({})

    def run(self, dag: str, run: str) -> dict[str, str]:
        return {"dag_id": dag, "dag_run_id": run, "state": self.server.runs[run]}

    def page(self, what: str, every: list[dict[str, Any]]) -> None:
        asked = parse_qs(urlsplit(self.path).query)
        begin, limit = int(asked.get("offset", ["0"])[0]), int(asked.get("limit", ["50"])[0])
        shown = every[begin : begin + min(limit, MOST)]
        self.say({what: shown, "total_entries": len(every)})

    def say(self, body: dict[str, Any]) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


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
