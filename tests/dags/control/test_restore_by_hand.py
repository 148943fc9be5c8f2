"""What a person restores: planned, always asked, done by the hosts, compared, told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.sdk import DagRunState
from fastapi.testclient import TestClient

from state_lib.config import Settings
from state_lib.digests.live import live_digests
from state_lib.snapshots.listing import list_snapshots
from tests.dags.conftest import Connect, scripted_dag
from tests.support.committed import PARTITIONS, Committed
from tests.support.person import Person, airflows_api

APP = "by_hand_present"
ASKED = ["alarm approval-waiting", "recovery approval-waiting"]


@pytest.fixture(scope="module")
def web(database: None) -> Iterator[TestClient]:  # noqa: ARG001 - it must be there
    with airflows_api() as made:
        yield made


@pytest.fixture
def person(web: TestClient) -> Iterator[Person]:
    made = Person(web, f"{APP}_restore_by_hand")
    yield made
    made.done()


@pytest.fixture(scope="module")
def made() -> dict[str, Committed]:
    return {}


@pytest.fixture
def app(
    settings: Settings,
    hosts: None,
    made: dict[str, Committed],
    tmp_path_factory: pytest.TempPathFactory,
) -> Committed:
    """One for all tests, filled: a snapshot of each task, and a tail."""
    del hosts  # they must run
    if APP not in made:
        made[APP] = Committed(settings, APP, tmp_path_factory.mktemp(APP))
        for p in range(PARTITIONS):
            made[APP].commit(p, a="1", b="2")
        made[APP].snapshot()
        for p in range(PARTITIONS):
            made[APP].commit(p, c="3")
    return made[APP]


@pytest.fixture
def run(
    settings: Settings,
    bag: BundleDagBag,
    connect: Connect,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Any]:
    del bag  # its bundles are where `dag.test` looks
    extra = {"hosts": settings.hosts, "snapshots_url": settings.snapshots_url}
    given = {"conn_type": "holdfast", "password": settings.read_token(), "extra": extra}
    connect(settings.bootstrap_servers, "holdfast_default", **given)
    monkeypatch.setenv("SCRIPTED", str(tmp_path))

    def run(**conf: Any) -> Any:
        return scripted_dag(f"{APP}_restore_by_hand").test(run_conf=conf)

    return run


def told(folder: Path) -> list[str]:
    path = folder / "told"
    return path.read_text().splitlines() if path.exists() else []


def states(run: Any) -> dict[str, str]:
    return {ti.task_id: str(ti.state) for ti in run.get_task_instances()}


def xcom(run: Any, task: str) -> Any:
    return run.get_task_instance(task).xcom_pull(task)


def digests(app: Committed) -> dict[int, str]:
    settings = app.settings
    found = live_digests(app.app.topology, settings.host_addresses, settings.read_token())
    assert not found.failed
    return {task.partition: str(task.stores["kv"]) for task in found.tasks}


ALL = dict.fromkeys(("plan", "approve", "restore", "report", "tell"), "success")
PRESENT = {**ALL, "plan_past": "skipped", "go_back": "skipped"}


def test_one_task_is_built_anew_from_its_changelog(
    app: Committed, run: Callable[..., Any], person: Person, tmp_path: Path
) -> None:
    before = digests(app)
    heard: list[str] = []
    person.will("Approve", first=lambda: heard.extend(told(tmp_path)))
    ended = run(tasks=[1], source="changelog")
    person.done()
    assert ended.state == DagRunState.SUCCESS
    assert states(ended) == PRESENT
    assert heard == ASKED[:1]
    (body,) = person.bodies
    assert f"### {APP}/1: from changelog" in body
    assert f"{APP}/0" not in body
    (restored,) = xcom(ended, "restore")
    assert (restored["task"], restored["source"]) == (f"{APP}/1", "changelog")
    report = xcom(ended, "report")
    assert (report["verified"], [one["task"] for one in report["tasks"]]) == (True, [f"{APP}/1"])
    assert digests(app) == before
    assert told(tmp_path) == ASKED, "no failure, so no recovery of one"


def test_all_tasks_of_one_snapshot_each(
    app: Committed, run: Callable[..., Any], person: Person
) -> None:
    """The newest valid one; its id is a source, too, of the one task that it is of."""
    before = digests(app)
    url = app.settings.snapshots_url
    newest = [list_snapshots(url, APP, p)[0].id for p in range(PARTITIONS)]
    person.will("Approve")
    ended = run(source="snapshot")
    person.done()
    assert ended.state == DagRunState.SUCCESS
    assert [one["source"] for one in xcom(ended, "restore")] == newest
    person.will("Approve")
    ended = run(tasks=[0], source=newest[0])
    person.done()
    assert ended.state == DagRunState.SUCCESS
    assert f"### {APP}/0: from {newest[0]}" in person.bodies[1]
    assert digests(app) == before


def test_where_nothing_is_to_be_done_nobody_is_asked(
    app: Committed, run: Callable[..., Any], tmp_path: Path
) -> None:
    del app
    ended = run()
    assert states(ended) == PRESENT
    assert xcom(ended, "approve") == {"asked": False, "approved": []}
    assert xcom(ended, "restore") == []
    assert told(tmp_path) == []


def test_a_no_changes_nothing(
    app: Committed, run: Callable[..., Any], person: Person, tmp_path: Path
) -> None:
    before = digests(app)
    person.will("Reject")
    ended = run(tasks=[0], source="changelog")
    person.done()
    assert states(ended) == {**PRESENT, "restore": "skipped", "report": "skipped"}
    assert digests(app) == before
    assert told(tmp_path) == ASKED


def test_a_question_that_was_cleared_is_over(
    app: Committed, run: Callable[..., Any], person: Person, tmp_path: Path
) -> None:
    """And the run has failed, since a task asks once: both are told."""
    before = digests(app)
    heard: list[str] = []
    person.will_clear("approve", first=lambda: heard.extend(told(tmp_path)))
    ended = run(tasks=[0], source="changelog")
    person.done()
    assert states(ended)["approve"] == "failed"
    assert heard == ASKED[:1]
    assert told(tmp_path) == [*ASKED, "alarm restore-failed"]
    assert digests(app) == before
    assert run().state == DagRunState.SUCCESS
    assert told(tmp_path) == [*ASKED, "alarm restore-failed", "recovery restore-failed"]


def test_what_does_not_go_together_is_refused_and_told_once(
    app: Committed,
    run: Callable[..., Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    del app
    for conf, why in (
        ({"source": "local", "to": "2026-01-31"}, "leave one of them out"),
        ({"republish": True}, "republish without to"),
        ({"tasks": [7]}, "tasks 0 to 1"),
    ):
        ended = run(**conf)
        assert ended.state == DagRunState.FAILED, "the task that tells does not make it a success"
        assert states(ended)["plan"] == "failed"
        assert states(ended)["approve"] == "upstream_failed"
        assert why in capsys.readouterr().out
    assert told(tmp_path) == ["alarm restore-failed"]
    assert run().state == DagRunState.SUCCESS
    assert told(tmp_path) == ["alarm restore-failed", "recovery restore-failed"]
