"""Claims: a driver writes itself to ``<app>-topology``, and takes every task."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import orjson
import structlog
from confluent_kafka import KafkaError, Message

from state_lib.addresses import HostAddress
from state_lib.changelog.reader import read_last
from state_lib.changelog.topics import plan_topics, topology_topic
from state_lib.client.flight import FlightHostClient
from state_lib.errors import ConfigurationError, Superseded, Unavailable
from state_lib.host.placement import owner_of
from state_lib.kafka import Kafka, ends
from state_lib.marker import Marker, now_ms
from state_lib.specs import Topology

log = structlog.get_logger(__name__)


def write_claim(kafka: Kafka, topology: Topology) -> int:
    """Publish the topology; returns the claim's offset: the driver's epoch."""
    outcome: list[tuple[KafkaError | None, Message]] = []
    producer = kafka.producer(**{"linger.ms": 0})
    body = topology.to_json() | {
        "extra": {
            "driver": f"{socket.gethostname()}/{os.getpid()}",
            "claimed_at": now_ms(),
        }
    }
    producer.produce(
        topology_topic(topology.app),
        orjson.dumps(body),
        key=topology.app.encode(),
        partition=0,
        on_delivery=lambda error, message: outcome.append((error, message)),
    )
    producer.flush(60)
    if not outcome or outcome[0][0] is not None:
        raise Unavailable(
            f"Kafka did not take the claim of {topology.app!r}: "
            f"{outcome[0][0] if outcome else 'no answer in 60 s'}; start again"
        )
    return int(outcome[0][1].offset() or 0)


def check_no_collision(kafka: Kafka, topology: Topology) -> None:
    """Refuse an application whose topics another one owns.

    Names join with ``-``: app ``a`` store ``b-c`` and app ``a-b`` store ``c`` would share one
    changelog. Only an application whose id begins with the other's can collide.

    Raises:
        ConfigurationError: naming the other application and the topics.
    """
    ours = {p.name for p in plan_topics(topology) if p.owned}
    suffix = topology_topic("")
    for topic in kafka.admin().list_topics(timeout=15).topics:
        other = topic.removesuffix(suffix)
        related = other.startswith(f"{topology.app}-") or topology.app.startswith(f"{other}-")
        record = read_last(kafka, topic, 0) if topic.endswith(suffix) and related else None
        value = None if record is None else record.value()
        if value is None:
            continue
        theirs = {p.name for p in plan_topics(Topology.from_json(orjson.loads(value))) if p.owned}
        if shared := sorted(ours & theirs):
            raise ConfigurationError(
                f"application {topology.app!r} would share the topics {shared} with application "
                f"{other!r}: rename one of them, or a store",
                other=other,
                topics=shared,
            )


def check_not_superseded(kafka: Kafka, app: str, epoch: int) -> None:
    """Raise Superseded if a claim was written after ours."""
    at = (topology_topic(app), 0)
    end = ends(kafka.admin(), [at])[at]
    if end > epoch + 1:
        raise Superseded(
            f"epoch {epoch} of application {app!r} was superseded by a claim at offset {end - 1}: "
            "another driver was started; this one exits",
            epoch=epoch,
            current=end - 1,
        )


def claim_tasks(
    topology: Topology,
    epoch: int,
    hosts: tuple[HostAddress, ...],
    token: str | None,
    timeout_s: float,
    stopped: Callable[[], bool],
) -> list[Marker]:
    """Take every task, waiting for those that are opening; returns their markers by partition.

    Raises:
        Superseded: a newer driver exists.
        Unavailable: a host stayed away for ``timeout_s``; names it.
    """
    deadline = time.monotonic() + timeout_s

    def claim(partition: int) -> Marker:
        client = FlightHostClient(owner_of(topology.app, partition, hosts), token)
        wait, told = 0.05, False
        try:
            while True:
                try:
                    return client.claim(topology.app, partition, epoch)
                except Unavailable as error:
                    if time.monotonic() > deadline or stopped():
                        raise
                    if not told and wait > 1:
                        log.info("waiting for a task", partition=partition, why=error.message)
                        told = True
                time.sleep(wait)
                wait = min(wait * 2, 2.0)
        finally:
            client.close()

    with ThreadPoolExecutor(min(16, topology.partitions)) as pool:
        return list(pool.map(claim, range(topology.partitions)))
