"""The pages about a driver, in Airflow's own api-server application, behind its log-in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from airflow.api_fastapi.app import create_app, get_auth_manager, purge_cached_app
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db
from fastapi.testclient import TestClient

from state_lib.reports.folder import Reports
from state_lib.snapshots.manifest import new_id
from tests.support.airflow_home import AIRFLOW_BUNDLE

LOG = "/holdfast/streams/flights_stream/supervise/log"


@pytest.fixture(scope="module")
def client(bag: BundleDagBag) -> Iterator[TestClient]:
    sync_bag_to_db(bag, AIRFLOW_BUNDLE, None)
    purge_cached_app()
    with TestClient(create_app("core")) as made:
        yield made
    purge_cached_app()


def logged_in(role: str | None) -> dict[str, str]:
    user = SimpleAuthManagerUser(username="somebody", role=role)
    return {"Authorization": f"Bearer {get_auth_manager().generate_jwt(user)}"}


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    monkeypatch.setenv("HOLDFAST_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    path = tmp_path / "logs" / "flights.log"
    path.parent.mkdir()
    path.write_text("".join(f"line {i} <b>\n" for i in range(1000)))
    return path


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize("page", ["log", "spark", "capacity"])
def test_nobody_reads_without_a_log_in(client: TestClient, page: str) -> None:
    path = f"/holdfast/streams/flights_stream/supervise/{page}"
    assert client.get(path).status_code == 401
    wrong = {"Authorization": "Bearer nonsense"}
    assert client.get(path, headers=wrong).status_code == 403
    assert client.get(path, headers=logged_in(None)).status_code == 403


@pytest.mark.usefixtures("log")
def test_the_end_of_the_log(client: TestClient) -> None:
    page = client.get(LOG, headers=logged_in("viewer"))
    assert page.status_code == 200
    assert "line 999 &lt;b&gt;" in page.text
    assert "line 500" in page.text
    assert "line 499" not in page.text
    text = client.get(LOG, params={"raw": True, "lines": 2}, headers=logged_in("viewer"))
    assert text.text == "line 998 <b>\nline 999 <b>"
    assert text.headers["content-type"].startswith("text/plain")


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize("lines", ["0", "-1", "x", "99999999"])
def test_a_number_of_lines_that_makes_no_sense(client: TestClient, lines: str) -> None:
    answer = client.get(LOG, params={"lines": lines}, headers=logged_in("viewer"))
    assert answer.status_code == 422


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize(
    "path",
    [
        "flights_load/load/log",
        "flights_stream/nothing/log",
        "nothing/supervise/log",
        "..%2F..%2Fetc/passwd/log",
    ],
)
def test_only_tasks_that_supervise_a_stream_have_a_log(client: TestClient, path: str) -> None:
    answer = client.get(f"/holdfast/streams/{path}", headers=logged_in("viewer"))
    assert answer.status_code == 404


def test_a_driver_that_never_started(client: TestClient, log: Path) -> None:
    log.unlink()
    answer = client.get(LOG, headers=logged_in("viewer"))
    assert answer.status_code == 404
    assert "has not started yet" in answer.json()["detail"]


@pytest.mark.usefixtures("log")
def test_sparks_page_while_kafka_is_away(client: TestClient) -> None:
    path = "/holdfast/streams/flights_stream/supervise/spark"
    answer = client.get(path, headers=logged_in("viewer"), follow_redirects=False)
    assert answer.status_code == 404
    assert "no Spark page of 'flights' is known" in answer.json()["detail"]


CAPACITY = "/holdfast/streams/flights_capacity/report/capacity"


def test_the_newest_capacity_report(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_REPORTS_URL", str(tmp_path))
    assert client.get(CAPACITY).status_code == 401
    missing = client.get(CAPACITY, headers=logged_in("viewer"))
    assert missing.status_code == 404
    assert "HOLDFAST_REPORTS_URL" in missing.json()["detail"]
    reports = Reports(tmp_path.as_uri(), "flights", "capacity")
    for at in (1_800_000_000_000, 1_800_000_001_000):
        reports.write(f"{new_id(at)}.html", f"<p>page of {at}</p>".encode())
    page = client.get(CAPACITY, headers=logged_in("viewer"))
    assert page.status_code == 200
    assert page.text == "<p>page of 1800000001000</p>"
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
