"""What the stack runs: the broker, if it is ours, and the state hosts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from state_lib.addresses import HostAddress
from state_lib.config import Settings
from state_lib.exits import EXIT_STOPPED, EXIT_SUPERSEDED
from state_lib.stack import jars, jobs, probes
from state_lib.stack.broker import BrokerConfig

KAFKA = "kafka"


@dataclass(frozen=True)
class Port:
    """A port that a program listens on, and the setting that changes it."""

    host: str
    port: int
    setting: str


@dataclass(frozen=True)
class Program:
    """One service.

    Attributes:
        name: Its name for people and for supervisor.
        priority: Services start in rising order and stop in falling order.
        ports: What it listens on; the first is the one to show.
        stop_wait_s: How long it may take to stop after SIGTERM before SIGKILL.
        command: Renders the command line; may fetch what it needs first.
        prepare: Done before each start, such as formatting a new broker's data directory.
        healthy: Asks the running service; never raises.
        by_default: Whether ``up`` starts it when nothing is named.
        final_exit_codes: Codes after which it is not started again; None: after any it is.
    """

    name: str
    priority: int
    ports: tuple[Port, ...]
    stop_wait_s: int
    command: Callable[[], list[str]]
    prepare: Callable[[], None]
    healthy: Callable[[], bool]
    by_default: bool = True
    final_exit_codes: tuple[int, ...] | None = None


def programs(settings: Settings) -> tuple[Program, ...]:
    """The services of these settings, in starting order. A foreign Kafka is not among them."""
    hosts = tuple(_host(address) for address in settings.host_addresses)
    streams = tuple(_stream(job) for job in jobs.streams(settings.jobs_dir))
    own = (*hosts, *streams)
    return (_kafka(settings), *own) if uses_local_broker(settings) else own


def uses_local_broker(settings: Settings) -> bool:
    """Whether ``bootstrap_servers`` is the stack's own broker."""
    return settings.bootstrap_servers == f"127.0.0.1:{settings.kafka_port}"


def _kafka(settings: Settings) -> Program:
    broker = BrokerConfig(
        settings.home / "kafka",
        settings.kafka_port,
        settings.kafka_controller_port,
        heap_max=settings.kafka_heap,
    )

    def classpath() -> tuple[Path, ...]:
        return jars.fetch("kafka", directory=settings.jars_dir)

    return Program(
        name=KAFKA,
        priority=100,
        ports=(
            Port(broker.host, broker.port, "HOLDFAST_KAFKA_PORT"),
            Port(broker.host, broker.controller_port, "HOLDFAST_KAFKA_CONTROLLER_PORT"),
        ),
        stop_wait_s=20,
        command=lambda: broker.command(classpath()),
        prepare=lambda: broker.prepare(classpath()),
        healthy=lambda: probes.kafka(broker.bootstrap),
    )


def _host(address: HostAddress) -> Program:
    both = (address.http_port, address.flight_port)
    return Program(
        name=address.id,
        priority=200,
        ports=tuple(Port(address.host, port, "HOLDFAST_HOSTS") for port in both),
        stop_wait_s=15,
        command=lambda: [sys.executable, "-m", "state_lib.host", "--id", address.id],
        prepare=lambda: None,
        healthy=lambda: probes.http_ready(address.host, address.http_port),
    )


def _stream(job: Path) -> Program:
    """A job's driver: it runs until it is stopped, and not on after a newer driver has claimed."""
    return Program(
        name=job.stem,
        priority=300,
        ports=(),
        stop_wait_s=90,
        command=lambda: [sys.executable, str(job)],
        prepare=lambda: None,
        healthy=lambda: True,
        by_default=False,
        final_exit_codes=(EXIT_STOPPED, EXIT_SUPERSEDED),
    )
