"""One Kafka broker in KRaft mode, as a process: its configuration, its format, its life.

`BrokerConfig` renders what a broker needs and is used by the supervised stack. `LocalBroker` runs
one without a supervisor, for tests: it can be killed and started again on the same ports and data.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from state_lib.errors import ConfigurationError, Unavailable
from state_lib.stack import jars, probes
from state_lib.stack.java import java_binary
from state_lib.stack.ports import free_port

LOG4J = Path(__file__).with_name("log4j2.xml")
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class BrokerConfig:
    """A single-node broker.

    Attributes:
        directory: Holds ``server.properties`` and the data, in ``data/``.
        port: Where clients connect.
        controller_port: Where the KRaft controller listens, in the same process.
        heap_min: ``-Xms``, in Java's notation.
        heap_max: ``-Xmx``, in Java's notation.
        host: The address to bind to and to advertise.
        listeners: Further listeners and their ports; a name is its security protocol, such as
            ``SASL_SSL``, and what it needs to know is in ``extra``.
        extra: Properties that win over ours.
    """

    directory: Path
    port: int
    controller_port: int
    heap_min: str = "256m"
    heap_max: str = "1g"
    host: str = "127.0.0.1"
    listeners: Mapping[str, int] = field(default_factory=dict)
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        """``host:port`` for clients."""
        return f"{self.host}:{self.port}"

    @property
    def properties_path(self) -> Path:
        """Where `prepare` writes the configuration."""
        return self.directory / "server.properties"

    def properties(self) -> dict[str, str]:
        """The broker's configuration; whatever is replicated has one replica."""
        controller = f"{self.host}:{self.controller_port}"
        named = {"PLAINTEXT": self.port, "CONTROLLER": self.controller_port, **self.listeners}
        listeners = ",".join(f"{name}://{self.host}:{port}" for name, port in named.items())
        protocols = ["CONTROLLER:PLAINTEXT", *(f"{n}:{n}" for n in named if n != "CONTROLLER")]
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": controller,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": ",".join(protocols),
            "listeners": listeners,
            "advertised.listeners": listeners,
            "log.dirs": str(self.directory / "data"),
            # A typo in a topic's name must be an error and not a new topic.
            "auto.create.topics.enable": "false",
            "offsets.topic.num.partitions": "4",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            # After a crash the controller accepts the broker again only when its old session has
            # ended: 9 s by default, in which a single node is down.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            **self.extra,
        }

    @property
    def scratch(self) -> Path:
        """Where its JVM puts the native libraries that it unpacks."""
        return self.directory / "tmp"

    def prepare(self, classpath: Sequence[Path]) -> None:
        """Write the configuration, and format the data directory if it never was (2 s).

        Raises:
            ConfigurationError: Kafka's storage tool refused; its words are in the message.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        lines = [f"{key}={value}\n" for key, value in self.properties().items()]
        self.properties_path.write_text("".join(lines))
        shutil.rmtree(self.scratch, ignore_errors=True)  # left by a killed one
        self.scratch.mkdir()
        data = Path(self.properties()["log.dirs"])
        if (data / "meta.properties").exists():
            return
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A", 1)
        tool = ["kafka.tools.StorageTool", "format", "--standalone", "-t", cluster]
        command = [*self._java(classpath, "16m", "128m"), *tool, "-c", str(self.properties_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own command
        if done.returncode:
            said = (done.stderr or done.stdout).strip()[-2000:]
            message = f"Kafka could not format {data}: {said}"
            raise ConfigurationError(message, directory=str(data))

    def command(self, classpath: Sequence[Path]) -> list[str]:
        """The command that runs the broker in the foreground."""
        java = self._java(classpath, self.heap_min, self.heap_max)
        return [*java, "kafka.Kafka", str(self.properties_path)]

    def _java(self, classpath: Sequence[Path], heap_min: str, heap_max: str) -> list[str]:
        return [
            java_binary(),
            f"-Xms{heap_min}",
            f"-Xmx{heap_max}",
            "-XX:+UseG1GC",
            "-XX:+ExitOnOutOfMemoryError",  # a restart is better than a broker that half works
            "-Djava.awt.headless=true",
            f"-Djava.io.tmpdir={self.scratch}",
            f"-Dlog4j2.configurationFile={LOG4J}",
            "-cp",
            os.pathsep.join(map(str, classpath)),
        ]


class LocalBroker:
    """A broker for tests: ``with LocalBroker(path) as b: b.bootstrap; b.kill(); b.start()``.

    It lives in its own session, keeps its ports and data over `kill` and `start`, and logs to
    ``broker.log`` in its directory. Leaving the ``with`` stops it; the directory stays.
    """

    def __init__(  # noqa: PLR0913 - what a test may want to be different
        self,
        directory: Path,
        classpath: Sequence[Path] | None = None,
        *,
        port: int | None = None,
        heap_min: str = "64m",
        heap_max: str = "384m",
        listeners: Mapping[str, int] | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> None:
        """Choose ports; nothing starts yet.

        Args:
            directory: Configuration, data and log; made if missing.
            classpath: The jars of the set ``kafka``; fetched when None.
            port: Where clients connect; a free one when None.
            heap_min: ``-Xms``.
            heap_max: ``-Xmx``.
            listeners: Further listeners, see `BrokerConfig`.
            extra: Broker properties that win over ours.
        """
        ports = port or free_port(), free_port()
        self.config = BrokerConfig(
            directory,
            *ports,
            heap_min=heap_min,
            heap_max=heap_max,
            listeners=dict(listeners or {}),
            extra=dict(extra or {}),
        )
        self.log = directory / "broker.log"
        self._classpath = classpath
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """``host:port`` for clients."""
        return self.config.bootstrap

    @property
    def pid(self) -> int | None:
        """The broker's process id, None when it does not run."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self, timeout_s: float = START_TIMEOUT_S) -> Self:
        """Start and wait until clients are answered; does nothing when it runs.

        Raises:
            Unavailable: it ended, or did not answer in time; the log's end is in the message.
        """
        if self.pid is not None:
            return self
        classpath = self._classpath = self._classpath or jars.fetch("kafka")
        self.config.prepare(classpath)
        with self.log.open("ab") as log:
            process = self._process = subprocess.Popen(  # noqa: S603 - our own command
                self.config.command(classpath),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + timeout_s
        atexit.register(self.kill)  # a test run that ends early leaves no broker behind
        while not probes.kafka(self.bootstrap):
            if process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                tail = self.log.read_text(errors="replace")[-3000:]
                message = (
                    f"the broker on {self.bootstrap} did not come up; {self.log} ends:\n{tail}"
                )
                raise Unavailable(message, log=str(self.log))
            time.sleep(0.1)
        return self

    def kill(self) -> None:
        """SIGKILL, as a crash would: nothing is flushed or said good-bye to."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM: a controlled shutdown, SIGKILL after `STOP_TIMEOUT_S`."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._process = None
        atexit.unregister(self.kill)

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()
