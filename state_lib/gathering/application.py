"""The facts of one application, from everybody who knows some."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from state_lib.apps.catalogue import find
from state_lib.changelog.claims import topology_of
from state_lib.checks.facts import Facts, TopicSeen, Wanted
from state_lib.errors import KafkaRefused, LogLost, NotFound
from state_lib.gathering.drills import drill_seen
from state_lib.gathering.history import note, recall
from state_lib.gathering.hosts import hosts_seen
from state_lib.gathering.samples import samples
from state_lib.gathering.snapshots import snapshots_seen
from state_lib.gathering.topics import topics_seen
from state_lib.kafka import Kafka
from state_lib.names import check_name
from state_lib.protocol.marker import Marker, now_ms
from state_lib.reports.folder import Reports
from state_lib.specs import DAY_MS, Topology
from state_lib.task.claiming import standing

if TYPE_CHECKING:
    from state_lib.config import Settings

SNAPSHOT_AGE_MS = DAY_MS + 2 * 3600 * 1000
"""Snapshots are to be taken daily at least; they take their time."""
HOST_TIMEOUT_S = 10.0
_SETTLE_S, _AGAIN_S = 3.0, 0.1


def gather(
    settings: Settings,
    kafka: Kafka,
    app: str,
    *,
    timeout_s: float = HOST_TIMEOUT_S,
    read_logs: bool = True,
) -> Facts:
    """Everything that checks look at.

    Args:
        settings: where hosts and storage are.
        kafka: the brokers.
        app: application.
        timeout_s: for each host, all at the same time.
        read_logs: read changelogs at some places, to see whether they are compacted.

    Raises:
        NotFound: there is no such application; lists those that there are.
        LogLost: its topology topic is gone, and its tasks are not.
        InvalidName: not a possible name.
        Unavailable: Kafka is away.
    """
    facts = gather_settings(settings, kafka, app)
    topology, topics, now = facts.topology, facts.topics, facts.now
    hosts = hosts_seen(settings.host_addresses, settings.read_token(), app, timeout_s)
    earlier = recall(settings.home, app)
    read = samples(kafka, topology, topics, hosts, now) if read_logs else None
    if read is not None:
        note(settings.home, app, earlier, read, now)
    stored = snapshots_seen(settings.snapshots_url, topology, topics, facts.markers, now)
    if stored.away is None:
        stored = replace(stored, drill=drill_seen(Reports.of(settings, app, "drill")))
    return replace(
        facts,
        hosts=hosts,
        snapshots=stored,
        samples=read,
        earlier=earlier,
    )


def gather_settings(settings: Settings, kafka: Kafka, app: str) -> Facts:
    """What Kafka alone says: topics, their settings and bounds, markers. Raises as `gather`."""
    topology, now = declared(kafka, app), now_ms()
    markers = standing(kafka, app)
    return Facts(
        topology=topology,
        now=now,
        wanted=Wanted(settings.replication_factor, settings.min_insync_replicas, SNAPSHOT_AGE_MS),
        topics=_settled(kafka, topology, markers),
        markers=tuple(markers),
    )


def declared(kafka: Kafka, app: str) -> Topology:
    """As declared, for those as well who may not describe the group of its drivers: checkers.

    Raises as `gather`.
    """
    check_name("application", app)
    try:
        return topology_of(kafka, app)
    except NotFound as error:
        with suppress(KafkaRefused):
            if find(kafka, app).lost:
                raise LogLost(error.message, app=app) from error
        raise


def _settled(kafka: Kafka, topology: Topology, markers: Sequence[Marker]) -> dict[str, TopicSeen]:
    """Topics, with ends that are no older than the markers.

    A transaction ends in one partition after the other: where a marker can be read already, its
    changelog may not have ended yet.
    """
    deadline = time.monotonic() + _SETTLE_S
    while True:
        topics = topics_seen(kafka, topology)
        if not _lag(topics, markers) or time.monotonic() > deadline:
            return topics
        time.sleep(_AGAIN_S)


def _lag(topics: Mapping[str, TopicSeen], markers: Sequence[Marker]) -> bool:
    """Whether something that was committed is not in its log."""
    return any(
        topic in topics and p < len(topics[topic].ends) and end > topics[topic].ends[p]
        for p, marker in enumerate(markers)
        for topic, end in marker.committed.items()
    )
