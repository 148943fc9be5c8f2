"""Claims: a driver writes a record to ``<app>-topology``, and takes every task under its offset."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import structlog
from confluent_kafka import Producer

from state_lib.changelog.claims import candidates, gone, newest_claim, tell, user_name
from state_lib.changelog.topics import (
    changelog_topic,
    commits_topic,
    plan_topics,
)
from state_lib.client.flight import FlightHostClient
from state_lib.driver.epochs import Epoch
from state_lib.drivers.identity import Identity
from state_lib.errors import ConfigurationError, LogLost, Unavailable
from state_lib.evolution import contradictions
from state_lib.kafka import Kafka, describe, ends
from state_lib.protocol.addresses import HostAddress
from state_lib.protocol.marker import Marker, now_ms
from state_lib.protocol.placement import owner_of
from state_lib.specs import Topology
from state_lib.task.claiming import claim_or_none, standing
from state_lib.times import iso

log = structlog.get_logger(__name__)
_AT_ONCE = 64


def write_claim(  # noqa: PLR0913 - all but two are for few
    kafka: Kafka,
    topology: Topology,
    driver: Identity | None = None,
    code: str | None = None,
    hosts: Sequence[HostAddress] = (),
    producer: Producer | None = None,
    *,
    readers: Mapping[str, str] | None = None,
) -> int:
    """Publish the topology; returns the claim's offset: the driver's epoch.

    Args:
        kafka: connection.
        topology: as the job declares it.
        driver: who claims; by default this process.
        code: fingerprint of the job.
        hosts: all that its tasks are placed on: a host that lost its disk learns that from here.
        producer: see `tell`.
        readers: topic → Avro schema that it is read by: see `state_lib.driver.readers`.
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
        **({"readers": readers} if readers else {}),
    }
    body = topology.to_json() | {"extra": said}
    return tell(kafka, topology.app, topology.app.encode(), body, producer=producer)


def check_same_application(kafka: Kafka, topology: Topology) -> None:
    """Refuse to take over an application that another job declared under the same id.

    A store to which nothing was ever committed may be given up: a job whose new stores cannot be
    opened can go back to what it was before.

    Raises:
        ConfigurationError: names the difference, and user, file and time of the other driver.
        LogLost: a topic that holds its state was deleted.
        TopicRecreated: the topology topic was deleted.
    """
    claim = claim_or_none(kafka, topology.app)
    if claim is None or (claim.notice is not None and claim.notice.done):
        return
    if claim.notice is not None:
        raise ConfigurationError(gone(topology.app, claim.notice).message, app=topology.app)
    by = {"driver": "unknown", "file": "unknown", "user": "unknown", **claim.by}
    published = _given_up(kafka, claim.topology, topology)
    if found := contradictions(published, topology):
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
    _check_topics_are_there(kafka, published)
    if gave_up := sorted({s.name for s in claim.topology.stores if s not in published.stores}):
        log.info("gives up stores to which nothing was ever committed", stores=gave_up)
    log.info("takes over from", epoch=claim.epoch, driver=by["driver"], file=by["file"])


def _given_up(kafka: Kafka, published: Topology, declared: Topology) -> Topology:
    """The published topology without stores that are given up and to which nothing was committed.

    A job that keeps none of the stores is another job. An empty changelog alone proves nothing: the
    topic may have been deleted and created again, which markers show.
    """
    app, admin = published.app, kafka.admin()
    lost = [s.name for s in published.stores if declared.store(s.name) is None]
    if not lost or len(lost) == len(published.stores):
        return published
    there = describe(admin, (changelog_topic(app, name) for name in lost))
    logs = ends(admin, ((t, p) for t, facts in there.items() for p in range(facts.partitions)))
    written = {topic for (topic, _), end in logs.items() if end > 0}
    written |= {topic for marker in standing(kafka, app) for topic in marker.committed}
    unwritten = {name for name in lost if changelog_topic(app, name) in there.keys() - written}
    return replace(published, stores=tuple(s for s in published.stores if s.name not in unwritten))


def _check_topics_are_there(kafka: Kafka, published: Topology) -> None:
    """Refuse to create topics again: those of a published topology existed before its claim."""
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


class Claimant:
    """Takes the tasks of an application for the driver of an epoch.

    Args:
        topology: of the application.
        epoch: of the driver's claim.
        hosts, token: where tasks are, and the token of the hosts.
        stopped: whether the driver is to end.
    """

    def __init__(
        self,
        topology: Topology,
        epoch: Epoch,
        hosts: tuple[HostAddress, ...],
        token: str | None,
        stopped: Callable[[], bool],
    ) -> None:
        self._topology, self._epoch, self._stopped = topology, epoch, stopped
        self._hosts, self._token = hosts, token

    def one(self, partition: int) -> Marker:
        """Take a task, in one try.

        Raises:
            Superseded: a newer driver exists.
            Unavailable: its host is away, or it is not open.
        """
        app = self._topology.app
        client = FlightHostClient(owner_of(app, partition, self._hosts), self._token)
        try:
            return client.claim(app, partition, self._epoch.number, self._epoch.topic_id)
        finally:
            client.close()

    def all(
        self, timeout_s: float, park: Callable[[Mapping[int, Unavailable]], dict[int, Marker]]
    ) -> list[Marker]:
        """Take every task, waiting for those that are opening; returns their markers by partition.

        A task that is being restored to the past is waited for as long as its host reports that.

        Args:
            timeout_s: how long to wait for tasks that cannot be left out.
            park: called with the missing tasks once others are taken; returns the markers of those
                that it leaves out.

        Raises:
            Superseded: a newer driver exists.
            Unavailable: a host stayed away for ``timeout_s``; names it.
        """
        deadline, wait = time.monotonic() + timeout_s, 0.05
        taken: dict[int, Marker] = {}
        every, told = range(self._topology.partitions), False
        with ThreadPoolExecutor(min(_AT_ONCE, len(every))) as pool:
            while missing := [p for p in every if p not in taken]:
                tries = dict(zip(missing, pool.map(self._try, missing), strict=True))
                taken |= {p: x for p, x in tries.items() if isinstance(x, Marker)}
                away = {p: x for p, x in tries.items() if isinstance(x, Unavailable)}
                if taken and away:
                    taken |= park(away)
                if left := [error for p, error in away.items() if p not in taken]:
                    patient = any(x.details.get("past") is not None for x in left)
                    if self._stopped() or (time.monotonic() > deadline and not patient):
                        raise left[0]
                    if not told and wait > 1:
                        log.info("waiting for tasks", partitions=missing, why=left[0].message)
                        told = True
                    time.sleep(wait)
                    wait = min(wait * 2, 2.0)
        return [taken[p] for p in every]

    def _try(self, partition: int) -> Marker | Unavailable:
        try:
            return self.one(partition)
        except Unavailable as error:
            return error
