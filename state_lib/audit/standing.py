"""Takes hold of everything that an application holds, as of one place that all tasks stand at.

A stream may be running. Snapshots of all stores are opened first; then the ends of the topics that
commits write to are read, and only then it is checked that no commit came in between. If one did,
all is let go and taken again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from confluent_kafka import TopicPartition

from state_lib.changelog.reader import read_last
from state_lib.changelog.topics import commits_topic, dead_letter_queue
from state_lib.client.flight import FlightHostClient
from state_lib.config import Settings
from state_lib.errors import Unavailable
from state_lib.kafka import ADMIN_TIMEOUT_S, Kafka, Partition, ends
from state_lib.protocol.addresses import HostAddress
from state_lib.protocol.marker import Marker
from state_lib.protocol.placement import owner_of
from state_lib.protocol.positions import Positions
from state_lib.specs import Topology

RETRY_S = 0.25


@dataclass(frozen=True)
class Standing:
    """One consistent place: markers, snapshots of the stores, ends of outputs and dead letters.

    The snapshots are held by the hosts until they are read to the end.
    """

    markers: tuple[Marker, ...]
    scans: dict[tuple[str, int], Iterator[pa.RecordBatch]]
    ends: dict[Partition, int]

    @property
    def positions(self) -> Positions:
        """The positions of all tasks."""
        return self.markers[0].positions

    @property
    def stream_time_ms(self) -> int:
        """The greatest of all tasks."""
        return max(m.stream_time_ms for m in self.markers)

    @property
    def behind_outputs(self) -> int:
        """Source records from here to where outputs were written: more than 0 after going back."""
        return max(
            sum(to - m.positions.get(p, 0) for p, to in m.published_to.items())
            for m in self.markers
        )


def take_hold(kafka: Kafka, settings: Settings, topology: Topology, wait_s: float) -> Standing:
    """Wait until all tasks stand at one place, and take hold of it.

    Raises:
        Unavailable: they did not for ``wait_s`` seconds; says where they stand.
    """
    deadline = time.monotonic() + wait_s
    clients: dict[HostAddress, FlightHostClient] = {}
    while True:
        try:
            return _try(kafka, settings, topology, clients)
        except Unavailable as error:
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"no place of {topology.app!r} could be audited for {wait_s:.0f} s: "
                    f"{error.message}. If its driver crashed, start it again: it aligns the tasks. "
                    "If it is busy, stop it or wait longer (--wait)",
                    app=topology.app,
                ) from error
        time.sleep(RETRY_S)


def _try(
    kafka: Kafka,
    settings: Settings,
    topology: Topology,
    clients: dict[HostAddress, FlightHostClient],
) -> Standing:
    tasks = range(topology.partitions)
    markers: list[Marker] = []
    scans: dict[tuple[str, int], Iterator[pa.RecordBatch]] = {}
    for task in tasks:
        address = owner_of(topology.app, task, settings.host_addresses)
        if address not in clients:
            clients[address] = FlightHostClient(address, settings.read_token())
        for store in topology.stores:
            marker, scan = clients[address].scan(topology.app, task, store.name)
            scans[store.name, task] = scan
            if len(markers) == task:
                markers.append(marker)
            elif marker != markers[task]:
                raise Unavailable(f"task {task} committed meanwhile")
    places = {task: m.positions for task, m in enumerate(markers)}
    if any(place != places[0] for place in places.values()):
        shown = {task: place.to_json() for task, place in places.items()}
        raise Unavailable(f"its tasks stand at different positions: {shown}")
    if not places[0]:
        raise Unavailable("its tasks have no positions yet: no batch was committed")
    written = sorted({o.topic for o in topology.outputs} | {dead_letter_queue(topology.app)})
    end = _settled_ends(kafka, [(t, p) for t in written for p in tasks])
    _check_still(kafka, topology, markers)
    return Standing(tuple(markers), scans, end)


def _settled_ends(kafka: Kafka, places: list[Partition]) -> dict[Partition, int]:
    """Their ends, none of them within a transaction; else Unavailable.

    Brokers mark the end of a transaction in one partition after the other: it may be over in the
    one of markers while an output's records cannot be read yet.
    """
    consumer = kafka.reader(**{"isolation.level": "read_uncommitted"})
    try:
        written = {
            (t, p): consumer.get_watermark_offsets(TopicPartition(t, p), ADMIN_TIMEOUT_S)[1]
            for t, p in places
        }
    finally:
        consumer.close()
    if written != ends(kafka.admin(), places):
        raise Unavailable("a commit is under way")
    return written


def _check_still(kafka: Kafka, topology: Topology, markers: list[Marker]) -> None:
    """Raise Unavailable if a commit was under way or done since the markers were read.

    A marker is the last record of its transaction: with no open transaction in its partition and
    the same marker last, nothing of a later commit can be visible anywhere.
    """
    commits = commits_topic(topology.app)
    _settled_ends(kafka, [(commits, p) for p in range(topology.partitions)])
    for task, marker in enumerate(markers):
        last = read_last(kafka, commits, task)
        value = None if last is None else last.value()
        newest = Marker() if value is None else Marker.from_bytes(value)
        if (newest.epoch, newest.batch_number) != (marker.epoch, marker.batch_number):
            raise Unavailable(f"task {task} committed meanwhile")
