"""All of Airflow's processes, once: the only live ones of `make test`."""

from __future__ import annotations

from pathlib import Path

from state_lib.client.airflow import FINAL
from state_lib.stack import Stack
from state_lib.stack.record import Record
from tests.integration.airflow.test_stack import (
    DAG,
    SERVICES,
    WITHIN_S,
    client_of,
    settings_in,
)
from tests.support.waiting import SLOWNESS, until


def test_a_task_runs_and_down_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "look_around.py").write_text(DAG)
    stack = Stack(settings_in(tmp_path))
    try:
        stack.up(only=SERVICES, timeout_s=WITHIN_S * SLOWNESS)
        with client_of(stack.settings) as airflow:
            until(lambda: "look_around" in airflow.dags(), WITHIN_S)
            airflow.unpause("look_around")
            run = airflow.trigger("look_around", {"folder": str(tmp_path)})
            until(lambda: airflow.run(run.dag, run.id).state in FINAL, WITHIN_S)
            assert [(t.id, t.state) for t in airflow.tasks(run)] == [("look", "success")]
        until((tmp_path / "ready").exists)
        record = Record.read(stack.paths.record)
    finally:
        stack.down()
    assert (tmp_path / "edge").exists(), "a driver is asked to end, and not killed"
    assert record is not None
    assert record.processes() == []
