"""The three brokers of docker/compose.yaml, configured and formatted by the image's own program."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

from state_lib.stack import jars, probes
from state_lib.stack.broker import LOG4J
from state_lib.stack.java import java_binary
from tests.support.compose import BROKERS
from tests.support.composed import Composed
from tests.support.waiting import until

FLAGS = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Three JVMs start on a machine of two cores, beside others."""


class ComposedKafka:
    """Brokers of a `Composed`."""

    def __init__(self, composed: Composed) -> None:
        self._composed = composed
        self._jars = os.pathsep.join(map(str, jars.fetch("kafka")))

    @property
    def bootstrap(self) -> str:
        """Of all brokers, dead or not."""
        return ",".join(self._composed.address(name) for name in BROKERS)

    def start(self) -> None:
        """All brokers, and wait until each answers."""
        with ThreadPoolExecutor(len(BROKERS)) as pool:
            list(pool.map(self._prepare, BROKERS))
        for name in BROKERS:
            self.start_broker(name)
        for name in BROKERS:
            self.await_broker(name)

    def start_broker(self, name: str) -> None:
        """Start it, or start it again on what it has."""
        file = self._composed.folder / name / "final" / "server.properties"
        self._composed.start(name, self._java(name, "kafka.Kafka", str(file)))

    def await_broker(self, name: str) -> None:
        """Until clients are answered."""
        self._composed.await_healthy(name)
        until(lambda: probes.kafka(self._composed.address(name)), 90, f"{name} up")

    def stop(self) -> None:
        """SIGKILL: nobody needs their data any more, and a controlled shutdown takes seconds."""
        for name in BROKERS:
            if name in self._composed.processes:
                self._composed.kill(name)

    def _prepare(self, name: str) -> None:
        """As the image does: its program writes server.properties and formats the data."""
        root = self._composed.folder / name
        for one in ("default", "mounted", "final", "tmp"):
            (root / one).mkdir(parents=True)
        for file in ("server.properties", "log4j2.yaml", "tools-log4j2.yaml"):
            (root / "default" / file).write_text("{}\n" if file.endswith("yaml") else "")
        folders = zip(("-D", "-M", "-F"), ("default", "mounted", "final"), strict=True)
        options = [word for option, one in folders for word in (option, str(root / one))]
        done = subprocess.run(
            self._java(name, "kafka.docker.KafkaDockerWrapper", "setup", *options),
            env=self._composed.environment(name),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def _java(self, name: str, *program: str) -> list[str]:
        scratch = f"-Djava.io.tmpdir={self._composed.folder / name / 'tmp'}"
        log4j = f"-Dlog4j2.configurationFile={LOG4J}"
        return [java_binary(), *FLAGS, scratch, log4j, "-cp", self._jars, *program]
