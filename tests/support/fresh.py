"""Environments with our wheel and what it asks for, and projects of one's own in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from state_lib.stack.ports import free_port

ROOT = Path(__file__).parents[2]


def environment(home: Path, extras: str) -> Path:
    """A virtual environment with the wheel's extras, and nothing of this checkout.

    The lock only says which versions: a package that the wheel forgets to name is not there.
    What `make setup` has brought is taken from uv's cache: where an index gives no validators,
    every look at it online would build Spark again, and leave 1.4 GB in the cache.
    """
    uv = str(Path(sys.executable).parent / "uv")

    def run(*command: str, check: bool = True) -> bool:
        done = subprocess.run([uv, *command], check=False, cwd=home, capture_output=True, text=True)
        assert done.returncode == 0 or not check, done.stderr[-3000:]
        return done.returncode == 0

    python = str(home / "venv" / "bin" / "python")
    run("venv", "--python", sys.executable, "venv")
    build = ("build", "--wheel", "--no-build-isolation", "--python", sys.executable)
    run(*build, "--out-dir", str(home), str(ROOT))
    (wheel,) = home.glob("holdfast-*.whl")
    lock = str(ROOT / "requirements.lock")
    wanted = f"holdfast[{extras}] @ {wheel.as_uri()}"
    install = ("pip", "install", "--python", python, "--constraint", lock, wanted)
    if not run("--offline", *install, check=False):  # somebody has emptied the cache
        run(*install)
    return home / "venv"


class Project:
    """A folder that `holdfast new` wrote, and the commands of an environment in it."""

    def __init__(self, venv: Path, folder: Path, **settings: str) -> None:
        self.folder, self._bin = folder, venv / "bin"
        hosts = ",".join(f"host-{i}=127.0.0.1:{free_port()}/{free_port()}" for i in (1, 2))
        self.port = free_port()
        own = {
            "HOSTS": hosts,
            "KAFKA_PORT": str(free_port()),
            "KAFKA_CONTROLLER_PORT": str(free_port()),
            "AIRFLOW_PORT": str(self.port),
            "SPARK_UI_PORT": str(free_port()),
            **settings,
        }
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HOLDFAST", "PYTHON"))}
        self.env = {
            **kept,
            **{f"HOLDFAST_{name}": value for name, value in own.items()},
            "PATH": os.pathsep.join((str(self._bin), os.environ["PATH"])),
        }

    def run(self, *command: str, cwd: Path | None = None) -> str:
        """Run one of the environment's programs, or any by its path; its output."""
        done = subprocess.run(
            [str(self._bin / command[0]), *command[1:]],
            cwd=cwd or self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout

    def start(self, log: Path, *command: str) -> subprocess.Popen[bytes]:
        """As `run`, and not waited for."""
        program = str(self._bin / command[0])
        with log.open("wb") as out:
            return subprocess.Popen(
                [program, *command[1:]], cwd=self.folder, env=self.env, stdout=out, stderr=out
            )

    def purchases(self, name: str) -> int:
        """Purchases in the store, by now."""
        try:
            found = self.run("holdfast", "query", name, "totals", "-n", "1000", "--json")
        except AssertionError as error:  # the application has not run yet
            if "Error" in str(error):
                return 0
            raise
        return sum(json.loads(line)["value"]["purchases"] for line in found.splitlines())
