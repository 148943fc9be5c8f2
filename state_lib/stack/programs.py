"""What the stack runs: the broker, if it is ours, the state hosts, and Airflow."""

from __future__ import annotations

import sys
from pathlib import Path

from state_lib.config import Settings
from state_lib.protocol.addresses import HostAddress
from state_lib.stack import airflow, jars, probes
from state_lib.stack.broker import BrokerConfig
from state_lib.stack.program import Port, Program

KAFKA = "kafka"


def programs(settings: Settings) -> tuple[Program, ...]:
    """The services of these settings, in starting order. A foreign Kafka is not among them."""
    hosts = tuple(_host(address) for address in settings.host_addresses)
    kafka = (_kafka(settings),) if uses_local_broker(settings) else ()
    orchestrator = airflow.programs(settings) if settings.airflow else ()
    return (*kafka, *hosts, *orchestrator)


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
        healthy=lambda _: probes.kafka(broker.bootstrap),
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
        healthy=lambda _: probes.http_answers(address.host, address.http_port, "/readyz"),
        lives=lambda: probes.http_answers(address.host, address.http_port, "/livez"),
    )
