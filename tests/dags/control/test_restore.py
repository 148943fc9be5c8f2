"""A lost store is sensed, planned, approved where it must be, restored by its host, verified."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.sdk import DAG, DagRunState
from fastapi.testclient import TestClient

from holdfast_airflow.operators.restore import ApproveRestoreOperator
from state_lib.restore.plan import RestorePlan
from tests.dags.conftest import Connect, scripted_dag
from tests.support.host_process import Hosts
from tests.support.person import Person, airflows_api
from tests.support.restore_group import (
    CONN,
    NOWHERE,
    PARTITIONS,
    Group,
    led_nowhere,
    zeroed,
)
from tests.support.waiting import until

APP = "restored"


@pytest.fixture
def dag(bag: BundleDagBag) -> DAG:
    del bag  # its bundles are where `dag.test` looks
    return scripted_dag(f"{APP}_restore")


def states(run: Any) -> dict[str, str]:
    return {ti.task_id: str(ti.state) for ti in run.get_task_instances()}


def xcom(run: Any, task: str, key: str = "return_value") -> Any:
    return run.get_task_instance(task).xcom_pull(task, key=key)


# ---------------------------------------------------------------- nobody is asked


def test_a_deleted_directory_comes_back_with_no_person(
    group: Group, dag: DAG, capsys: pytest.CaptureFixture[str]
) -> None:
    before = group.digests()
    group.lose(0)
    began = time.monotonic()
    run = dag.test()
    said = capsys.readouterr().out
    assert run.state == DagRunState.SUCCESS, said
    assert set(states(run).values()) == {"success"}
    assert xcom(run, "watch") == [f"{APP}/0"]
    (plan,) = xcom(run, "plan")
    assert (plan["task"], plan["source"], plan["discards"]) == (f"{APP}/0", "changelog", [])
    assert xcom(run, "approve") == {"asked": False, "approved": []}
    (restored,) = xcom(run, "restore")
    assert (restored["task"], restored["state"]) == (f"{APP}/0", "done")
    report = xcom(run, "report")
    assert report["verified"]
    assert report["stream"].startswith(f"no driver of {APP} runs")
    assert 0 < report["seconds"] < 60
    assert "(100 %)" in said
    assert f"kv: {group.digests()['0 kv']}" in said
    assert group.digests() == before
    took = time.monotonic() - began
    print(f"sensed to verified: {report['seconds']} s; the whole run: {took:.1f} s")  # noqa: T201


def test_a_lost_disk_comes_back_with_no_person(
    group: Group, dag: DAG, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of a host's, also what it remembers of its applications: it learns that from Kafka."""
    before, host = group.digests(), group.owner(0)
    theirs = [p for p in range(PARTITIONS) if group.owner(p) == host]
    tasks = [f"{APP}/{p}" for p in theirs]
    Hosts.lose(group, host)
    assert not group.state(host).exists()
    group.launch()
    for partition in theirs:
        group.is_("quarantined", partition)
    assert group.state(host).exists(), "it is remembered again"
    assert not [p for p in theirs if group.directory(p).exists()], "nothing was built"
    run = dag.test()
    said = capsys.readouterr().out
    assert run.state == DagRunState.SUCCESS, said
    assert xcom(run, "watch") == tasks
    assert xcom(run, "approve") == {"asked": False, "approved": []}
    done = {one["task"]: one["state"] for one in xcom(run, "restore")}
    assert done == dict.fromkeys(tasks, "done")
    assert xcom(run, "report")["verified"]
    assert [group.rebuilt(p) for p in theirs] == [1] * len(theirs)
    assert group.digests() == before


def test_what_a_person_must_correct_fails_the_run_and_is_said(
    group: Group,
    dag: DAG,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("holdfast_airflow.triggers.condition.PATIENCE_S", 1.0)
    settings = group.settings
    given = {"conn_type": "holdfast", "password": "a-guess", "extra": {"hosts": settings.hosts}}
    connect(settings.bootstrap_servers, CONN, **given)
    run = dag.test()
    assert run.state == DagRunState.FAILED
    assert states(run)["watch"] == "failed"
    assert "every state host refuses the token" in capsys.readouterr().out


# ---------------------------------------------------------------- a person is asked


@pytest.fixture(scope="module")
def web(database: None) -> Iterator[TestClient]:  # noqa: ARG001 - it must be there
    with airflows_api() as made:
        yield made


@pytest.fixture
def person(web: TestClient) -> Iterator[Person]:
    made = Person(web, f"{APP}_restore")
    yield made
    made.done()


@pytest.mark.parametrize("damage", [led_nowhere, zeroed])
def test_what_is_discarded_is_asked_for_and_waits(
    group: Group,
    dag: DAG,
    person: Person,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[Path], dict[Path, bytes]],
) -> None:
    before = group.digests()
    damaged = group.corrupt(1, damage)

    def still_lost() -> None:
        assert group.seen(1)["state"] == "quarantined"
        assert {file: file.read_bytes() for file in damaged} == damaged

    person.will("Approve", first=still_lost)
    run = dag.test()
    person.done()
    assert run.state == DagRunState.SUCCESS, capsys.readouterr().out
    assert person.refused == [403], "a viewer's answer does not count"
    (body,) = person.bodies
    assert f"### {APP}/1: from changelog" in body
    assert "- **discarded**: the present directory" in body
    assert "| local | not valid |" in body
    assert xcom(run, "approve")["chosen_options"] == ["Approve"]
    (plan,) = xcom(run, "plan")
    assert xcom(run, "approve")["approved"] == [RestorePlan.from_json(plan).id]
    assert xcom(run, "report")["verified"]
    assert group.digests() == before


def test_a_no_changes_nothing(group: Group, dag: DAG, person: Person) -> None:
    group.corrupt(1)
    person.will("Reject")
    run = dag.test()
    person.done()
    assert states(run) == {
        "watch": "success",
        "plan": "success",
        "approve": "success",
        "restore": "skipped",
        "report": "skipped",
    }
    assert group.seen(1)["state"] == "quarantined"
    assert (group.directory(1) / "CURRENT").read_text() == NOWHERE
    assert group.restored(1) is None


def snapshot_taken(group: Group, partition: int) -> Path:
    """A snapshot of a task, and where it is."""
    with group.client(partition) as client:
        client.snapshot(APP, partition)
        until(lambda: client.snapshot_status(APP, partition)["state"] == "done", 60)
    return Path(group.url.removeprefix("file://")) / APP


def test_a_task_that_is_cleared_does_not_ask_by_its_old_question(
    group: Group, dag: DAG, person: Person, capsys: pytest.CaptureFixture[str]
) -> None:
    """Airflow would show the plan of before: a person would approve what nobody has read."""
    folder = snapshot_taken(group, 1)
    group.corrupt(1)
    person.will_clear("plan", "approve", first=lambda: shutil.rmtree(folder))
    run = dag.test()
    person.done()
    (body,) = person.bodies
    assert f"### {APP}/1: from changelog" not in body
    assert xcom(run, "plan")[0]["source"] == "changelog", "another plan"
    assert states(run) == {
        "watch": "success",
        "plan": "success",
        "approve": "failed",
        "restore": "upstream_failed",
        "report": "upstream_failed",
    }
    assert "this is try 2 of the task" in capsys.readouterr().out
    assert group.restored(1) is None


def test_who_needs_no_answer_does_not_wait_for_one(group: Group, dag: DAG) -> None:
    group.corrupt(1)
    group.lose(0)
    run = dag.test()
    assert run.state == DagRunState.SUCCESS
    assert xcom(run, "watch") == [f"{APP}/0", f"{APP}/1"]
    assert [one["task"] for one in xcom(run, "restore")] == [f"{APP}/0"]
    assert group.seen(1)["state"] == "quarantined", "the next run asks about it"


# ---------------------------------------------------------------- stale plans


def rot(folder: Path) -> None:
    """Snapshots that were whole when they were taken."""
    for file in folder.glob("*/files/*"):
        file.write_bytes(bytes(file.stat().st_size))


@pytest.mark.parametrize("harm", [shutil.rmtree, rot], ids=["pruned", "rotten"])
def test_a_plan_that_went_stale_is_planned_anew(
    group: Group,
    dag: DAG,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    harm: Callable[[Path], None],
) -> None:
    before = group.digests()
    folder = snapshot_taken(group, 0)
    group.lose(0)
    execute = ApproveRestoreOperator.execute

    def meanwhile(operator: ApproveRestoreOperator, context: Any) -> Any:
        harm(folder)
        return execute(operator, context)

    monkeypatch.setattr(ApproveRestoreOperator, "execute", meanwhile)
    run = dag.test()
    said = capsys.readouterr().out
    assert run.state == DagRunState.SUCCESS, said
    assert xcom(run, "plan")[0]["source"] == "snapshot"
    assert "is not what would be done now" in said
    assert f"Planned anew: {APP}/0: from changelog" in said
    assert xcom(run, "restore")[0]["source"] == "changelog"
    assert group.digests() == before


def test_a_new_plan_that_discards_is_asked_for_again(
    group: Group, dag: DAG, person: Person, capsys: pytest.CaptureFixture[str]
) -> None:
    before = group.digests()
    folder = snapshot_taken(group, 1)
    group.corrupt(1)
    person.will("Approve", first=lambda: shutil.rmtree(folder))
    person.will("Approve", task="restore")
    run = dag.test()
    person.done()
    assert run.state == DagRunState.SUCCESS, capsys.readouterr().out
    first_, second = person.bodies
    assert len(person.limits) == 2
    assert None not in person.limits, "nobody answers: the run ends"
    assert "| snapshot" not in second
    assert "from changelog" not in first_
    assert f"### {APP}/1: from changelog" in second
    assert group.digests() == before


# ---------------------------------------------------------------- killed


def test_a_host_that_is_killed_in_the_middle_goes_on(
    group: Group, dag: DAG, capsys: pytest.CaptureFixture[str]
) -> None:
    before = group.digests()
    group.lose(0)
    process = group.processes[group.owner(0)]
    group.armed.write_text("restore.before_checkpoint=kill")

    def start_again() -> None:
        process.wait(120)
        group.armed.write_text("")
        group.launch()

    thread = threading.Thread(target=start_again)
    thread.start()
    run = dag.test()
    thread.join(120)
    said = capsys.readouterr().out
    assert process.returncode == -9
    assert run.state == DagRunState.SUCCESS, said
    assert "it is tried again" in said
    assert group.digests() == before
