"""Savepoints and the verification of snapshots, by the DAGs that a person triggers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.sdk import DagRunState

from holdfast_airflow.operators.savepoint import SavepointOperator
from state_lib.config import Settings
from state_lib.snapshots.savepoints import list_savepoints
from tests.dags.conftest import Connect, scripted_dag
from tests.support.committed import PARTITIONS, Committed

Run = Callable[..., tuple[Any, Any]]


@pytest.fixture
def run(settings: Settings, hosts: None, bag: BundleDagBag, connect: Connect) -> Run:
    """A DAG to its end: how the run ended, and its task."""
    del bag, hosts  # its bundles are where `dag.test` looks; they must run
    extra = {"hosts": settings.hosts, "snapshots_url": settings.snapshots_url}
    given = {"conn_type": "holdfast", "password": settings.read_token(), "extra": extra}
    connect(settings.bootstrap_servers, "holdfast_default", **given)

    def run(dag: str, **conf: Any) -> tuple[Any, Any]:
        found: Any = scripted_dag(dag).test(run_conf=conf)
        (task,) = found.get_task_instances()
        return found.state, task

    return run


@pytest.fixture
def committed(settings: Settings, hosts: None, tmp_path: Path) -> Callable[[str], Committed]:
    del hosts  # they must run

    def made(name: str) -> Committed:
        app = Committed(settings, name, tmp_path)
        for p in range(PARTITIONS):
            app.commit(p, a="1", b="2")
        return app

    return made


def test_a_savepoint_is_taken_and_its_snapshots_are_whole(
    committed: Callable[[str], Committed], run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    app = committed("kept")
    state, ti = run("kept_savepoint")
    assert state == DagRunState.SUCCESS
    made = ti.xcom_pull("savepoint")
    (listed,) = list_savepoints(app.settings.snapshots_url, "kept")
    assert (made["id"], made["batch_number"], len(made["snapshots"])) == (
        listed.id,
        listed.batch_number,
        PARTITIONS,
    )
    assert f"Savepoint {listed.id} of kept" in capsys.readouterr().out
    for conf in ({}, {"deep": True}, {"snapshot": listed.id, "deep": True}):
        state, ti = run("kept_verify_snapshots", **conf)
        assert state == DagRunState.SUCCESS
        found = ti.xcom_pull("verify")
        assert found["deep"] == conf.get("deep", False)
        assert {one["task"] for one in found["snapshots"]} == {"kept/0", "kept/1"}
        assert not any(one["problems"] for one in found["snapshots"])


def test_a_report_of_a_version_before_is_read() -> None:
    report = {"id": "x", "epoch": 7, "n": 4, "clock": 8500}
    made = SavepointOperator(task_id="savepoint", app="kept").judge(report)
    assert made == {"id": "x", "epoch": 7, "batch_number": 4, "stream_time_ms": 8500}


def test_a_changed_byte_is_found_by_who_reads_them_all(
    committed: Callable[[str], Committed], run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    app = committed("rotten")
    state, ti = run("rotten_verify_snapshots")
    assert (state, str(ti.state)) == (DagRunState.SUCCESS, "skipped"), "there is none"
    app.snapshot()
    for file in app.snapshots():
        file.write_bytes(bytes(file.stat().st_size))
    state, _ = run("rotten_verify_snapshots")
    assert state == DagRunState.SUCCESS, "by sizes it is whole"
    state, ti = run("rotten_verify_snapshots", deep=True)
    assert state == DagRunState.FAILED
    said = capsys.readouterr().out
    assert "snapshots of rotten are not whole, first" in said
    assert "holdfast snapshot create rotten" in said
    report = ti.xcom_pull("verify", key="report")
    assert all(one["problems"] for one in report["snapshots"])


def test_an_application_that_has_not_run(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    state, ti = run("nobody_verify_snapshots")
    assert (state, str(ti.state)) == (DagRunState.SUCCESS, "skipped")
    state, ti = run("nobody_savepoint")
    assert (state, str(ti.state)) == (DagRunState.FAILED, "failed"), "somebody wanted one"
    assert "there is no application 'nobody'" in capsys.readouterr().out
