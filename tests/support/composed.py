"""Services of docker/compose.yaml as processes on loopback, by their own commands and variables.

What Compose gives a service is text; names of services in it become addresses of this machine, and
paths in containers become paths in a folder of the test. Nothing else is changed.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from state_lib.stack import jars
from state_lib.stack.ports import free_port
from tests.support.compose import (
    BROKERS,
    DOCKER,
    HOSTS,
    IMAGE,
    OURS,
    ROOT,
    SPARK_WORKERS,
    environment,
    image_environment,
    service,
)
from tests.support.waiting import SLOWNESS, until

PORTS = {
    **dict.fromkeys(BROKERS, ("9092", "9093")),
    **dict.fromkeys(HOSTS, ("28815", "28816")),
    "airflow-api-server": ("8080",),
    "spark-master": ("7077", "8080"),
    **dict.fromkeys(SPARK_WORKERS, ("8081",)),
}
VOLUMES = ("/var/lib/holdfast", "/var/lib/kafka/data", "/var/lib/spark", "/var/log/airflow")
STOP_S = 30


class Composed:
    """Services of the compose file.

    Attributes:
        ports: ``service:port`` → the port of this machine.
        secrets: the folder that `make-secrets` made.
        dags: the folder of DAGs, empty at first.
    """

    def __init__(self, folder: Path, objects: str = "http://127.0.0.1:1") -> None:
        """Make secrets; nothing starts yet.

        Args:
            folder: for all that the services write.
            objects: the URL of an S3 server.
        """
        self.folder, self.secrets, self.dags = folder, folder / "secrets", folder / "dags"
        self.ports = {f"{name}:{p}": free_port() for name, ports in PORTS.items() for p in ports}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        shutil.copy2(DOCKER / "make-secrets", folder)
        subprocess.run([folder / "make-secrets"], check=True, capture_output=True)
        self.dags.mkdir()
        shutil.copytree(IMAGE, folder / "bin")
        for script in (folder / "bin").iterdir():  # one names the folder of secrets itself
            script.write_text(script.read_text().replace("/run/secrets", str(self.secrets)))
        self._same = {
            "${KAFKA_CLUSTER_ID:?run ./make-secrets first}": self._cluster(),
            "http://objects:8333": objects,
            "/run/secrets": str(self.secrets),
            "/run/airflow": str(folder),
            "/opt/airflow": str(folder / "airflow"),
            "/opt/holdfast/bin": str(folder / "bin"),
            "/opt/holdfast/dags": str(self.dags),
            "/opt/holdfast/jars": str(jars.default_directory()),
            "/opt/holdfast/jobs": str(ROOT / "jobs"),
        }

    def _cluster(self) -> str:
        return (self.folder / ".env").read_text().strip().partition("=")[2]

    def address(self, name: str, port: str | None = None) -> str:
        """Where a service listens."""
        return f"127.0.0.1:{self.ports[f'{name}:{port or PORTS[name][0]}']}"

    def text(self, name: str, value: str) -> str:
        """A value or a word of a command of this service, as this machine has it."""
        value = re.sub(  # of hosts it is the names, so that they are seen to do
            r"(host-\d)=\1:(\d+)/(\d+)",
            lambda m: (
                f"{m[1]}=localhost:{self.ports[f'{m[1]}:{m[2]}']}/{self.ports[f'{m[1]}:{m[3]}']}"
            ),
            value,
        )
        for at in self.ports:
            value = value.replace(at, self.address(*at.split(":")))
        for port in PORTS.get(name, ()):
            own = self.address(name, port)
            value = value.replace(f"0.0.0.0:{port}", own).replace(f"127.0.0.1:{port}", own)
            value = value.replace(f"127.0.0.1/{port}", own.replace(":", "/"))
        for there, here in self._same.items():
            value = value.replace(there, here)
        for volume in VOLUMES:
            value = value.replace(volume, str(self.folder / name / Path(volume).name))
        return value

    def environment(self, name: str) -> dict[str, str]:
        """Variables of a service; of this process only what a program needs to start."""
        kept = ("TMPDIR", "JAVA_HOME", "LANG", "TESTS_SLOWNESS", "XDG_CACHE_HOME")
        mine = {key: os.environ[key] for key in kept if key in os.environ}
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        image = image_environment() if service(name)["image"] == OURS else {}
        given = {**image, **environment(name)}
        texts = {key: self.text(name, value) for key, value in given.items()}
        return {**mine, "PATH": path, "HOME": str(self.folder), **texts}

    def command(self, name: str) -> list[str]:
        """What a service runs."""
        given = service(name)
        return [self._word(name, one) for one in (*given.get("entrypoint", ()), *given["command"])]

    def _word(self, name: str, word: str) -> str:
        """As `text`, also where it is one of the service's ports, or its name, and nothing else."""
        if word in PORTS.get(name, ()):
            return str(self.ports[f"{name}:{word}"])
        return "127.0.0.1" if word == service(name).get("hostname") else self.text(name, word)

    def run(self, name: str) -> None:
        """One that does its work and ends."""
        process = self.start(name)
        code = process.wait(120 * SLOWNESS)
        del self.processes[name]
        assert code == 0, self.log(name)

    def start(self, name: str, command: Iterable[str] = (), **more: str) -> subprocess.Popen[bytes]:
        """Start a service; by its own command unless another one is given."""
        folder = self.folder / name
        (folder / "holdfast").mkdir(parents=True, exist_ok=True)
        with (folder / "log").open("ab") as log:
            process = self.processes[name] = subprocess.Popen(
                [*command] or self.command(name),
                env={**self.environment(name), **more},
                cwd=folder / "holdfast",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return process

    def await_healthy(self, name: str, timeout_s: float = 90) -> None:
        """Until its health check succeeds."""

        def healthy() -> bool:
            assert self.processes[name].poll() is None, self.log(name)
            return self.healthy(name)

        until(healthy, timeout_s, f"{name} healthy")

    def healthy(self, name: str) -> bool:
        """What its health check says."""
        kind, *command = service(name)["healthcheck"]["test"]
        assert kind == "CMD"
        words = [self.text(name, one) for one in command]
        done = subprocess.run(words, env=self.environment(name), capture_output=True, check=False)
        return done.returncode == 0

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self.processes[name].kill()
        self.processes.pop(name).wait()

    def stop(self) -> None:
        """End all, those that started last first."""
        for process in reversed(self.processes.values()):
            process.terminate()
        for process in reversed(self.processes.values()):
            try:
                process.wait(STOP_S * SLOWNESS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self.processes.clear()

    def log(self, name: str) -> str:
        """The end of what it said."""
        return (self.folder / name / "log").read_text(errors="replace")[-3000:]
