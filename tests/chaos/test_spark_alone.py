"""`pip install holdfast[spark]` is enough for a driver: no Airflow and no server is installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.fresh import Project, environment
from tests.support.waiting import SLOWNESS, until

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]
NAME = "shop"
WITHIN_S = 180
ABSENT = ["airflow", "fastapi", "starlette", "uvicorn", "prometheus_client", "supervisor"]
LOOK = f"import importlib.util as u; print([n for n in {ABSENT} if u.find_spec(n)])"


def test_a_driver_runs_where_only_its_extra_is_installed(tmp_path: Path) -> None:
    project = Project(environment(tmp_path, "spark"), tmp_path / NAME, AIRFLOW="false")
    beside = str(Path(sys.executable).parent / "holdfast")  # of this environment, with all extras
    project.run("holdfast", "new", NAME, cwd=tmp_path)
    assert project.run("python", "-c", LOOK).strip() == "[]"
    log = tmp_path / "driver.log"
    try:
        project.run(beside, "up", "--timeout", "240")
        project.run("holdfast", "load", NAME)
        driver = project.start(log, "python", f"jobs/{NAME}.py")
        try:
            until(lambda: driver.poll() is not None or project.purchases(NAME) == 10_000, WITHIN_S)
            assert driver.poll() is None, log.read_text()[-3000:]
            project.run("holdfast", "stop", NAME)
            assert driver.wait(120 * SLOWNESS) == 0, log.read_text()[-3000:]
        finally:
            driver.kill()
            driver.wait()
    finally:
        project.run(beside, "down")
