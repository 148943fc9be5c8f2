"""Services of docker/compose.yaml as processes on loopback, from their own commands and variables.

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
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from state_lib.stack import jars, probes
from state_lib.stack.broker import LOG4J
from state_lib.stack.java import java_binary
from state_lib.stack.ports import free_port
from tests.support.compose import BROKERS, DOCKER, HOSTS, IMAGE, environment, service
from tests.support.waiting import SLOWNESS, until

CLIENTS, CONTROLLERS, FLIGHT, HTTP = "9092", "9093", "28815", "28816"
FLAGS = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Three JVMs start on a machine of two cores, beside others."""


class Composed:
    """The brokers and hosts of the compose file.

    Args:
        folder: for all that they write.
        objects: the URL of an S3 server.
    """

    def __init__(self, folder: Path, objects: str) -> None:
        self.folder = folder
        self.ports = {
            f"{name}:{port}": free_port()
            for names, both in ((BROKERS, (CLIENTS, CONTROLLERS)), (HOSTS, (FLIGHT, HTTP)))
            for name in names
            for port in both
        }
        self.objects = objects
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._jars = os.pathsep.join(map(str, jars.fetch("kafka")))
        shutil.copy2(DOCKER / "make-secrets", folder)
        subprocess.run([folder / "make-secrets"], check=True, capture_output=True)
        self._cluster = (folder / ".env").read_text().strip().partition("=")[2]

    @property
    def bootstrap(self) -> str:
        """Of all brokers, dead or not."""
        return ",".join(self.address(name) for name in BROKERS)

    def address(self, name: str, port: str = CLIENTS) -> str:
        """Where a service listens."""
        return f"127.0.0.1:{self.ports[f'{name}:{port}']}"

    def text(self, name: str, value: str) -> str:
        """A value, a word of a command, as this machine has it."""
        value = re.sub(r"\$\{KAFKA_CLUSTER_ID:[^}]*\}", self._cluster, value)
        value = re.sub(  # a list of hosts: names, so that these are seen to do
            rf"(host-\d)=\1:{FLIGHT}/{HTTP}",
            lambda m: (
                f"{m[1]}=localhost:{self.ports[f'{m[1]}:{FLIGHT}']}/{self.ports[f'{m[1]}:{HTTP}']}"
            ),
            value,
        )
        for at in self.ports:
            value = value.replace(at, self.address(*at.split(":")))
        for port in (CLIENTS, CONTROLLERS) if name in BROKERS else ():
            own = self.address(name, port)
            value = value.replace(f"0.0.0.0:{port}", own)
            value = value.replace(f"127.0.0.1/{port}", own.replace(":", "/"))
        value = value.replace("/var/lib/kafka/data", str(self.folder / name / "data"))
        value = value.replace("/run/secrets", str(self.folder / "secrets"))
        value = value.replace("/opt/holdfast/bin", str(IMAGE))
        return value.replace("http://objects:8333", self.objects)

    def environment(self, name: str) -> dict[str, str]:
        """Variables of a service; of this process only what a program needs to start."""
        kept = ("PATH", "TMPDIR", "JAVA_HOME", "LANG", "TESTS_SLOWNESS")
        ours = {key: os.environ[key] for key in kept if key in os.environ}
        given = {key: self.text(name, value) for key, value in environment(name).items()}
        return {**ours, "HOME": str(self.folder), **given}

    def start_kafka(self) -> None:
        """All brokers, and wait until each answers."""
        with ThreadPoolExecutor(len(BROKERS)) as pool:
            list(pool.map(self._prepare, BROKERS))
        for name in BROKERS:
            self.start_broker(name)
        for name in BROKERS:
            self.await_broker(name)

    def _prepare(self, name: str) -> None:
        """As the image does: its program writes server.properties and formats the data."""
        root = self.folder / name
        for one in ("default", "mounted", "final"):
            (root / one).mkdir(parents=True)
        for file in ("server.properties", "log4j2.yaml", "tools-log4j2.yaml"):
            (root / "default" / file).write_text("{}\n" if file.endswith("yaml") else "")
        program = ["-cp", self._jars, "kafka.docker.KafkaDockerWrapper", "setup"]
        for option, one in (("-D", "default"), ("-M", "mounted"), ("-F", "final")):
            program += [option, str(root / one)]
        done = subprocess.run(
            [java_binary(), *FLAGS, *self._own(name), *program],
            env=self.environment(name),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def start_broker(self, name: str) -> None:
        """Start it, or start it again on what it has."""
        root = self.folder / name
        program = ["-cp", self._jars, "kafka.Kafka", str(root / "final" / "server.properties")]
        log4j = f"-Dlog4j2.configurationFile={LOG4J}"
        self._start(name, [java_binary(), *FLAGS, *self._own(name), log4j, *program])

    def _own(self, name: str) -> list[str]:
        scratch = self.folder / name / "tmp"
        scratch.mkdir(parents=True, exist_ok=True)
        return [f"-Djava.io.tmpdir={scratch}"]

    def await_broker(self, name: str) -> None:
        """Until clients are answered."""

        def up() -> bool:
            assert self.processes[name].poll() is None, self.log(name)
            return probes.kafka(self.address(name))

        until(up, 90, f"{name} up")

    def start_host(self, name: str) -> None:
        """By its command, its volume a folder."""
        program, *arguments = service(name)["command"]
        assert program == "python"
        home = self.folder / name / "home"
        home.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, *(self.text(name, one) for one in arguments)]
        self._start(name, command, {"HOLDFAST_HOME": str(home)}, home)
        until(lambda: self.healthy(name), 60, f"{name} healthy")

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
        """End all, hosts first."""
        for names, how in ((HOSTS, signal.SIGTERM), (BROKERS, signal.SIGKILL)):
            mine = [self.processes.pop(name) for name in names if name in self.processes]
            for process in mine:
                process.send_signal(how)
            for process in mine:
                process.wait(60 * SLOWNESS)

    def log(self, name: str) -> str:
        """The end of what it said."""
        return (self.folder / name / "log").read_text(errors="replace")[-3000:]

    def _start(
        self,
        name: str,
        command: list[str],
        more: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        with (self.folder / name / "log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command,
                env={**self.environment(name), **(more or {})},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
