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
from state_lib.stack.ports import free_port
from tests.chaos.standalone import spark_cluster
from tests.support.waiting import until

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]
ROOT = Path(__file__).parents[2]
NAME = "shop"
WITHIN_S = 240


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with our wheel and what that asks for, and nothing of this checkout.

    The lock only says which versions: a package that the wheel forgets to name is not there.
    """
    home = tmp_path_factory.mktemp("fresh")
    uv = str(Path(sys.executable).parent / "uv")

    def run(*command: str) -> None:
        done = subprocess.run([uv, *command], check=False, cwd=home, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]

    python = str(home / "venv" / "bin" / "python")
    run("venv", "--python", sys.executable, "venv")
    build = ("build", "--wheel", "--no-build-isolation", "--python", sys.executable)
    run(*build, "--out-dir", str(home), str(ROOT))
    (wheel,) = home.glob("holdfast-*.whl")
    lock = str(ROOT / "requirements.lock")
    wanted = f"holdfast[test] @ {wheel.as_uri()}"
    run("pip", "install", "--python", python, "--constraint", lock, wanted)
    return home / "venv"


class Project:
    """A folder that `holdfast new` wrote, and the commands of the fresh environment in it."""

    def __init__(self, venv: Path, folder: Path) -> None:
        self.folder, self._bin = folder, venv / "bin"
        hosts = ",".join(f"host-{i}=127.0.0.1:{free_port()}/{free_port()}" for i in (1, 2))
        self.port = free_port()
        own = {
            "HOSTS": hosts,
            "KAFKA_PORT": str(free_port()),
            "KAFKA_CONTROLLER_PORT": str(free_port()),
            "AIRFLOW_PORT": str(self.port),
            "SPARK_UI_PORT": str(free_port()),
        }
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HOLDFAST", "PYTHON"))}
        self._env = {
            **kept,
            **{f"HOLDFAST_{name}": value for name, value in own.items()},
            "PATH": os.pathsep.join((str(self._bin), os.environ["PATH"])),
        }

    def run(self, *command: str, cwd: Path | None = None) -> str:
        """Run one of the environment's programs; its output."""
        done = subprocess.run(
            [str(self._bin / command[0]), *command[1:]],
            cwd=cwd or self.folder,
            env=self._env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout

    def airflow(self) -> Airflow:
        password = AirflowHome(self.folder / ".holdfast" / "airflow").password()
        return Airflow(f"http://127.0.0.1:{self.port}", "admin", password, patience_s=WITHIN_S)


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
    assert "3 passed" in project.run("pytest", "-q", "tests")
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
    with spark_cluster(tmp_path / "cluster") as master, project.airflow() as airflow:
        body = {"connection_id": "spark_default", "conn_type": "spark", "host": master}
        airflow._call("PATCH", "/connections/spark_default", json=body)
        dag = f"{NAME}_stream"
        until(lambda: dag in airflow.dags(), WITHIN_S)
        airflow.unpause(dag)
        run = airflow.trigger(dag)
        until(lambda: _purchases(project) == 10_000, WITHIN_S)
        hours = project.run("holdfast", "query", NAME, "hourly", "customer-007", "--json")
        assert sum(json.loads(line)["value"] for line in hours.splitlines()) > 0
        project.run("holdfast", "stop", NAME)
        until(lambda: airflow.run(dag, run.id).state in FINAL, WITHIN_S)
        assert airflow.run(dag, run.id).state == "success"


def _purchases(project: Project) -> int:
    """Purchases in the store, by now."""
    try:
        found = project.run("holdfast", "query", NAME, "totals", "-n", "1000", "--json")
    except AssertionError as error:  # the application has not run yet
        if "Error" in str(error):
            return 0
        raise
    return sum(json.loads(line)["value"]["purchases"] for line in found.splitlines())
