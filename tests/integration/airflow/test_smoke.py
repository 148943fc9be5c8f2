"""All of Airflow's processes, once: the only live ones of `make test`."""

from __future__ import annotations

from pathlib import Path

from state_lib.stack.record import Record
from tests.support.airflow_stack import client_of, look_around, running
from tests.support.waiting import until


def test_a_task_runs_and_down_leaves_nothing(tmp_path: Path) -> None:
    with running(tmp_path) as stack:
        with client_of(stack.settings) as airflow:
            run = look_around(airflow, tmp_path)
            assert [(t.id, t.state) for t in airflow.tasks(run)] == [("look", "success")]
        until((tmp_path / "ready").exists)
        record = Record.read(stack.paths.record)
    assert (tmp_path / "edge").exists(), "a driver is asked to end, and not killed"
    assert record is not None
    assert record.processes() == []
