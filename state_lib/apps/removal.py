"""Reset and delete: what would go and stay as a plan, and the same plan carried out.

Order makes a crash harmless: the notice first (it supersedes drivers, and hosts and drivers refuse
the application from then on), then hosts, then topics, the topology topic last. Whatever was done
is not found by the next run, which therefore finishes it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from confluent_kafka import KafkaException

from state_lib.apps.catalogue import find
from state_lib.apps.hosts import Held, Hosts
from state_lib.apps.sizes import TopicSize, foreign_topics, owned_topics, sizes
from state_lib.changelog.claims import Notice, newest_claim, tell, user_name
from state_lib.changelog.topics import changelog_topic, topology_topic
from state_lib.drivers.control import ask_to_stop
from state_lib.drivers.members import living_drivers
from state_lib.errors import HoldfastError, InvalidRequest, Unavailable
from state_lib.failpoints import failpoint
from state_lib.kafka import ADMIN_TIMEOUT_S, Kafka, describe, unavailable
from state_lib.kafka_door import is_forbidden
from state_lib.protocol.marker import now_ms
from state_lib.specs import StoreSpec, Topology
from state_lib.task.claiming import standing

Kind = Literal["reset", "delete"]
GONE_S, STOPPED_S = 60.0, 120.0
"""How long a deleted topic may still be listed, and a driver may take for its last batch."""


@dataclass(frozen=True)
class Removal:
    """What a reset or deletion does.

    Attributes:
        kind: ``reset`` keeps the topology topic, and with it the epochs; ``delete`` keeps nothing.
        app: its id.
        topology: as last declared, else as far as markers have it; None without both.
        goes: topics that are deleted.
        stays: sources and outputs.
        hosts: what each host drops.
        drivers: that live and are asked to stop first.
        notes: consequences that people should know.
    """

    kind: Kind
    app: str
    topology: Topology | None
    goes: tuple[TopicSize, ...]
    stays: tuple[TopicSize, ...]
    hosts: tuple[Held, ...]
    drivers: tuple[str, ...]
    notes: tuple[str, ...]


def plan(kafka: Kafka, hosts: Hosts, kind: Kind, app: str, *, stop: bool = False) -> Removal:
    """Look at everything that a removal would touch; changes nothing.

    Args:
        kafka: connection.
        hosts: all of them.
        kind: what to do.
        app: with what.
        stop: let `carry_out` ask its drivers to stop.

    Raises:
        NotFound: no such application; lists those that there are.
        InvalidRequest: a driver of it lives, and is not to be stopped.
        Unavailable: Kafka or a host cannot be asked.
        Unauthorized: a host refused the token.
    """
    held = hosts.held(app)
    _require_present(kind, app, held)
    known = find(kafka, app, held)
    if not stop:
        _require_stopped(kind, app, known.drivers)
    topology = _told_by_markers(kafka, app) if known.claim is None else known.claim.topology
    if topology is None:
        return Removal(kind, app, None, (), (), tuple(held), (), (_ONLY_HOSTS,))
    owned = owned_topics(topology)
    if kind == "reset":
        del owned[topology_topic(app)]
    stays = tuple(sizes(kafka, foreign_topics(topology)))
    return Removal(
        kind,
        app,
        topology,
        goes=tuple(sizes(kafka, owned)),
        stays=stays,
        hosts=tuple(held),
        drivers=known.drivers,
        notes=(*_notes(kind, stays), *((_UNDECLARED,) if known.claim is None else ())),
    )


def carry_out(
    kafka: Kafka, hosts: Hosts, removal: Removal, told: Callable[[str], None] = lambda _: None
) -> None:
    """Do what a plan says. May be run again after a crash; nothing is left half-done then.

    Args:
        kafka: connection.
        hosts: all of them.
        removal: from `plan`.
        told: called with a line about each step that is done.

    Raises:
        InvalidRequest: a driver was started since the plan was made.
        Unavailable: Kafka or a host went away; run it again.
        HoldfastError: the brokers refuse to delete a topic.
    """
    app, topology = removal.app, removal.topology
    if removal.drivers:
        _stop(kafka, removal)
        told(f"stopped: {', '.join(removal.drivers)}")
    _require_stopped(removal.kind, app, find(kafka, app, removal.hosts).drivers)
    epoch = -1
    if topology is not None and describe(kafka.admin(), [topology_topic(app)]):
        epoch = _notice(kafka, removal, topology, done=False)
        told("noticed: drivers and hosts refuse the application from now on")
        failpoint("removal.noticed")
    forgot = hosts.forget(app, epoch)
    _require_present(removal.kind, app, forgot)
    for one in forgot:
        told(f"host {one.host}: dropped {_brief(one, app)}")
    failpoint("removal.forgotten")
    if topology is None:
        return
    owned = list(owned_topics(topology))
    _require_newest(kafka, removal, epoch)
    for topic in owned[:-1]:
        if _delete(kafka, topic):
            told(f"topic {topic}: deleted")
        failpoint("removal.topic_deleted")
    _await_gone(kafka, owned[:-1])
    _require_newest(kafka, removal, epoch)
    if removal.kind == "reset":
        if epoch >= 0:
            _notice(kafka, removal, topology, done=True)
    else:
        _delete(kafka, owned[-1])
        _await_gone(kafka, owned[-1:])
        told(f"topic {owned[-1]}: deleted")


_ONLY_HOSTS = (
    "its topology topic does not exist any more, so only what hosts still hold of it is dropped"
)
_UNDECLARED = (
    "what it had declared is lost: its topics are those that its markers name, and of its outputs "
    "nothing is known"
)


def _told_by_markers(kafka: Kafka, app: str) -> Topology | None:
    """An application whose topology topic is gone: partitions, changelogs and sources."""
    markers = standing(kafka, app)
    if all(marker.epoch < 0 for marker in markers):
        return None
    logs = {topic for marker in markers for topic in (*marker.logs, *marker.committed)}
    names = [t.removeprefix(f"{app}-").removesuffix("-changelog") for t in sorted(logs)]
    stores = tuple(StoreSpec(name) for name in names if changelog_topic(app, name) in logs)
    sources = sorted({topic for marker in markers for topic, _ in marker.positions})
    return Topology(app, len(markers), stores, sources=tuple(sources))


def _notes(kind: Kind, stays: Iterable[TopicSize]) -> tuple[str, ...]:
    notes = []
    for size in stays:
        if kind == "reset" and size.role == "source" and size.forgotten:
            notes.append(
                f"source {size.topic} has lost its first {size.forgotten:,} records to retention: "
                "they cannot be counted again, and the new state will differ from the old one"
            )
        if kind == "reset" and size.role != "source" and size.records:
            notes.append(
                f"{size.topic} keeps its {size.records:,} records, and the next start writes them "
                "once more: its readers will see every change twice"
            )
    return tuple(notes)


def _require_present(kind: Kind, app: str, held: Iterable[Held]) -> None:
    for one in held:
        if one.away is not None:
            raise Unavailable(
                f"host {one.host!r} must let go of {app!r} and cannot be asked: {one.away}. Start "
                "it, or take it out of HOLDFAST_HOSTS if it is gone for good; then run "
                f"'holdfast app {kind} {app}' again",
                host=one.host,
                app=app,
            )


def _require_stopped(kind: Kind, app: str, drivers: tuple[str, ...]) -> None:
    if drivers:
        raise InvalidRequest(
            f"{app!r} has a living driver ({', '.join(drivers)}): stop its job and whatever starts "
            f"it again, then run 'holdfast app {kind} {app}' again, or let --stop ask it. (A "
            "driver that was killed counts for some seconds more)",
            app=app,
            drivers=list(drivers),
        )


def _stop(kafka: Kafka, removal: Removal) -> None:
    ask_to_stop(kafka, removal.app, why=f"a {removal.kind} of {removal.app} was asked for")
    deadline = time.monotonic() + STOPPED_S
    while living_drivers(kafka, removal.app):
        if time.monotonic() > deadline:
            raise Unavailable(
                f"the driver of {removal.app!r} was asked to stop, and still lives after "
                f"{STOPPED_S:.0f} s: look at its log; end it, then run the same command again",
                app=removal.app,
                drivers=list(removal.drivers),
            )
        time.sleep(0.25)


def _require_newest(kafka: Kafka, removal: Removal, epoch: int) -> None:
    newest = newest_claim(kafka, removal.app)
    if (-1 if newest is None else newest.epoch) != epoch:
        raise InvalidRequest(
            f"{removal.app!r} was claimed while it was removed: stop its driver, and run "
            f"'holdfast app {removal.kind} {removal.app}' again",
            app=removal.app,
        )


def _notice(kafka: Kafka, removal: Removal, topology: Topology, *, done: bool) -> int:
    notice = Notice(removal.kind, done, now_ms(), f"{user_name()}@{socket.gethostname()}")
    body = topology.to_json() | {"extra": {**topology.extra, "notice": vars(notice)}}
    return tell(kafka, removal.app, removal.app.encode(), body)


def _delete(kafka: Kafka, topic: str) -> bool:
    """Delete a topic; False if there was none."""
    admin = kafka.admin()  # kept until it has answered: another thread may replace it
    (future,) = admin.delete_topics([topic], operation_timeout=ADMIN_TIMEOUT_S).values()
    try:
        future.result()
    except KafkaException as error:
        if error.args[0].name() == "UNKNOWN_TOPIC_OR_PART":
            return False
        if is_forbidden(error.args[0]):
            raise unavailable(f"delete topic {topic!r}", error, kafka) from error
        raise HoldfastError(
            f"Kafka did not delete topic {topic!r}: {error.args[0].str()}. Allow it, and run the "
            "same command again: it goes on from there",
            topic=topic,
            kafka_error=error.args[0].name(),
        ) from error
    return True


def _await_gone(kafka: Kafka, topics: Iterable[str]) -> None:
    """A driver that starts now must not find what is about to vanish."""
    wanted, deadline = list(topics), time.monotonic() + GONE_S
    while left := sorted(describe(kafka.admin(), wanted)):
        if time.monotonic() > deadline:
            raise Unavailable(
                f"{left} are deleted, but still listed after {GONE_S:.0f} s: look at the brokers' "
                "logs, then run the same command again",
                topics=left,
            )
        time.sleep(0.1)


def _brief(held: Held, app: str) -> str:
    had = held.apps.get(app)
    return "nothing" if had is None else f"{len(had['tasks'])} tasks, {had['directory']}"
