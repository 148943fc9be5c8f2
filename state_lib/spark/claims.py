"""Claims: a driver writes itself to ``<app>-topology``, and takes every task."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import structlog
from confluent_kafka import Producer

from state_lib.addresses import HostAddress
from state_lib.changelog.claims import candidates, gone, newest_claim, tell, user_name
from state_lib.changelog.topics import (
    changelog_topic,
    commits_topic,
    plan_topics,
)
from state_lib.client.flight import FlightHostClient
from state_lib.drivers.identity import Identity
from state_lib.errors import ConfigurationError, LogLost, Unavailable
from state_lib.evolution import contradictions
from state_lib.host.placement import owner_of
from state_lib.kafka import Kafka, describe
from state_lib.marker import Marker, now_ms
from state_lib.spark.epochs import Epoch
from state_lib.specs import Topology
from state_lib.task.claiming import claim_or_none
from state_lib.times import iso

log = structlog.get_logger(__name__)


def write_claim(
    kafka: Kafka,
    topology: Topology,
    driver: Identity | None = None,
    code: str | None = None,
    hosts: Sequence[HostAddress] = (),
    producer: Producer | None = None,
) -> int:
    """Publish the topology; returns the claim's offset: the driver's epoch.

    Args:
        kafka: connection.
        topology: as the job declares it.
        driver: who claims; this process where none is given.
        code: fingerprint of the job.
        hosts: all that its tasks are placed on: one that lost its disk learns it from here.
        producer: as `tell` takes it.
    """
    driver = driver or Identity.of_this_process()
    said = {
        "driver": f"{driver.host}/{driver.pid}",
        **driver.to_json(),
        "user": user_name(),
        "file": str(Path(sys.argv[0]).absolute()),
        "code": code,
        "hosts": [str(host) for host in hosts],
        "claimed_at": now_ms(),
    }
    body = topology.to_json() | {"extra": said}
    return tell(kafka, topology.app, topology.app.encode(), body, producer=producer)


def check_same_application(kafka: Kafka, topology: Topology) -> None:
    """Refuse to take over an application that another job declared under the same id.

    Raises:
        ConfigurationError: the difference; whose driver, from which file and since when.
        LogLost: a topic that holds its state was deleted.
        TopicRecreated: the topology topic was.
    """
    claim = claim_or_none(kafka, topology.app)
    if claim is None or (claim.notice is not None and claim.notice.done):
        return
    if claim.notice is not None:
        raise ConfigurationError(gone(topology.app, claim.notice).message, app=topology.app)
    by = {"driver": "unknown", "file": "unknown", "user": "unknown", **claim.by}
    if found := contradictions(claim.topology, topology):
        since = iso(int(by.get("claimed_at", 0)))
        raise ConfigurationError(
            f"application {topology.app!r} exists already, and this job does not fit it: "
            f"{'; '.join(found)}. It was claimed at {since} by driver {by['driver']} of user "
            f"{by['user']} from {by['file']}. Give this job another application id; or, if that "
            f"state is not wanted any more, 'holdfast app delete {topology.app}'",
            app=topology.app,
            differences=found,
            claimed_by=dict(by),
            epoch=claim.epoch,
        )
    _check_topics_are_there(kafka, claim.topology)
    log.info("takes over from", epoch=claim.epoch, driver=by["driver"], file=by["file"])


def _check_topics_are_there(kafka: Kafka, published: Topology) -> None:
    """Refuse to create what was there once: topics are made before the claim that lists them."""
    app = published.app
    wanted = [*(changelog_topic(app, s.name) for s in published.stores), commits_topic(app)]
    present = describe(kafka.admin(), wanted)
    for topic in wanted:
        if topic not in present:
            raise LogLost(
                f"topic {topic!r} of application {app!r} was deleted, and with it what was "
                f"committed there. Hosts keep what they have: 'holdfast repair changelog {app}' "
                f"writes it anew from there; or begin anew: 'holdfast app reset {app}'",
                topic=topic,
            )


def check_no_collision(kafka: Kafka, topology: Topology) -> None:
    """Refuse an application whose topics another one owns.

    Names join with ``-``: app ``a`` store ``b-c`` and app ``a-b`` store ``c`` would share one
    changelog. Only an application whose id begins with the other's can collide.

    Raises:
        ConfigurationError: naming the other application and the topics.
    """
    ours = {p.name for p in plan_topics(topology) if p.owned}
    for other in candidates(kafka):
        related = other.startswith(f"{topology.app}-") or topology.app.startswith(f"{other}-")
        claim = newest_claim(kafka, other) if related else None
        if claim is None:
            continue
        theirs = {p.name for p in plan_topics(claim.topology) if p.owned}
        if shared := sorted(ours & theirs):
            raise ConfigurationError(
                f"application {topology.app!r} would share the topics {shared} with application "
                f"{other!r}: rename one of them, or a store",
                other=other,
                topics=shared,
            )


def claim_tasks(
    topology: Topology,
    epoch: Epoch,
    hosts: tuple[HostAddress, ...],
    token: str | None,
    timeout_s: float,
    stopped: Callable[[], bool],
) -> list[Marker]:
    """Take every task, waiting for those that are opening; returns their markers by partition.

    One that is restored to the past is waited for as long as its host says so.

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
                    return client.claim(topology.app, partition, epoch.number, epoch.topic_id)
                except Unavailable as error:
                    going_back = error.details.get("past") is not None
                    if stopped() or (time.monotonic() > deadline and not going_back):
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
