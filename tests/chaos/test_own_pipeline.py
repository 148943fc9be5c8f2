"""A pipeline of one's own: a wheel in a fresh environment, executors that have no Holdfast."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from state_lib.client.airflow import FINAL, Airflow
from state_lib.stack.airflow import AirflowHome
from state_lib.submit import _UNPACKED
from tests.chaos.standalone import spark_cluster
from tests.support.fresh import ROOT, Project, environment
from tests.support.waiting import until

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]
NAME = "shop"
WITHIN_S = 240


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("fresh"), "demo,test")


@pytest.fixture
def project(fresh: Path, tmp_path: Path) -> Iterator[Project]:
    made = Project(fresh, tmp_path / NAME)
    made.run("holdfast", "new", NAME, cwd=tmp_path)
    try:
        yield made
    finally:
        made.run("holdfast", "down")


def test_from_a_wheel_to_a_cluster(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = project.run("python", "-c", "import state_lib; print(state_lib.__file__)")
    assert str(ROOT) not in said
    assert "4 passed" in project.run("pytest", "-q", "tests")
    project.run("holdfast", "pack")
    toml = project.folder / "holdfast.toml"
    toml.write_text(toml.read_text() + 'executor_archive = "executors.tar.gz"\n')
    config: dict[str, Any] = json.loads(project.run("holdfast", "config", "--json"))
    assert config["driver"]["executor_archive"]["origin"] == "file"
    project.run("holdfast", "up", "--timeout", "240")
    project.run("holdfast", "load", NAME)
    bare = Path(sys.base_prefix) / "bin"
    monkeypatch.setenv("PATH", os.pathsep.join((str(bare), os.environ["PATH"])))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    alone = [str(bare / f"python3.{sys.version_info.minor}"), "-c", "import state_lib"]
    assert subprocess.run(alone, capture_output=True, cwd=tmp_path, check=False).returncode != 0
    with spark_cluster(tmp_path / "cluster") as master, airflow_of(project) as airflow:
        body = {"connection_id": "spark_default", "conn_type": "spark", "host": master}
        airflow._call("PATCH", "/connections/spark_default", json=body)
        dag = f"{NAME}_stream"
        until(lambda: dag in airflow.dags(), WITHIN_S)
        airflow.unpause(dag)
        run = airflow.trigger(dag)
        until(lambda: project.purchases(NAME) == 10_000, WITHIN_S)
        hours = project.run("holdfast", "query", NAME, "hourly", "customer-007", "--json")
        assert sum(json.loads(line)["value"] for line in hours.splitlines()) > 0
        shipped = (tmp_path / "cluster" / "work").glob(f"app-*/*/{_UNPACKED}/state_lib/__init__.py")
        assert list(shipped), "executors worked, with what was sent to them"
        project.run("holdfast", "stop", NAME)
        until(lambda: airflow.run(dag, run.id).state in FINAL, WITHIN_S)
        assert airflow.run(dag, run.id).state == "success"


def airflow_of(project: Project) -> Airflow:
    password = AirflowHome(project.folder / ".holdfast" / "airflow").password()
    return Airflow(f"http://127.0.0.1:{project.port}", "admin", password, patience_s=WITHIN_S)
