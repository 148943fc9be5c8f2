"""A topology topic that was deleted: what hosts remember of it, and how it is rewritten.

With the topic went the declaration of the last driver, and the count of epochs. Hosts remember
both. Until the declaration stands in the topic again no driver starts, for what a job declares now
could not be compared with it.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from state_lib.apps.hosts import Held, Hosts
from state_lib.changelog.admin import ensure_topics
from state_lib.changelog.claims import PASSED, Claim, newest_claim, tell, user_name
from state_lib.changelog.topics import changelog_topic, commits_topic, plan_topics, topology_topic
from state_lib.drivers.members import living_drivers
from state_lib.errors import InvalidRequest, NotFound
from state_lib.failpoints import failpoint
from state_lib.kafka import Kafka, describe, ends
from state_lib.names import check_name
from state_lib.protocol.marker import now_ms
from state_lib.specs import Topology
from state_lib.task.claiming import standing, would_take

_AT_ONCE = 10_000  # records; a producer's queue holds more
_LEARNED = ("epoch", "topic_id")
"""What hosts add to ``extra`` of a claim."""


@dataclass(frozen=True)
class Remembered:
    """The newest claim that a host remembers of an application, as its driver declared it."""

    host: str
    epoch: int
    topic_id: str
    declared: Topology


@dataclass(frozen=True)
class LostTopology:
    """A topology topic that does not hold what tasks stand at.

    Attributes:
        app: whose.
        exists: whether there is a topic of that name.
        stands_at: the highest epoch that a task stands at; -1 if the markers are lost too.
        remembered: what is written to it.
        newest: epoch of the newest claim in the topic that is there, which tasks would not take; -1
            if there is none.
    """

    app: str
    exists: bool
    stands_at: int
    remembered: Remembered
    newest: int = -1

    @property
    def passed(self) -> int:
        """The offset up to which the topic is filled."""
        return max(self.stands_at, self.remembered.epoch)


def look(kafka: Kafka, hosts: Hosts, app: str) -> LostTopology | None:
    """What is lost and what would take its place; None if nothing is lost. Changes nothing.

    Raises:
        NotFound: there is no such application; or no host that can be asked remembers its claim.
        InvalidRequest: a driver of it lives.
        Unavailable: Kafka cannot be asked.
        Unauthorized: a host refused the token.
    """
    topic = topology_topic(check_name("application", app))
    facts = describe(kafka.admin(), [topic]).get(topic)
    newest = None if facts is None else newest_claim(kafka, app)
    if newest is not None and newest.notice is not None:
        return None
    markers, held = standing(kafka, app), hosts.held(app)
    stands_at = max((m.epoch for m in markers), default=-1)
    remembered = list(_remembered(app, held))
    if facts is not None and newest is not None:
        fits = would_take(app, markers, newest.epoch, facts.id)
        if fits and (stands_at >= 0 or not _more_is_left(kafka, remembered, newest, facts.id)):
            return None
    newer = [r for r in remembered if would_take(app, markers, r.epoch, r.topic_id)]
    if not newer:
        raise _forgotten(app, stands_at, [r.epoch for r in remembered], held)
    found = max(newer, key=lambda r: r.epoch)
    if stands_at < 0:
        _require_left(kafka, found.declared)
    _require_stopped(kafka, app)
    at = -1 if newest is None else newest.epoch
    return LostTopology(app, facts is not None, stands_at, found, at)


def write(kafka: Kafka, lost: LostTopology, replication: int, min_insync: int) -> int:
    """Rewrite the topic; returns the epoch of the claim in it. May be killed and run again.

    Raises:
        InvalidRequest: a driver lives by now, or has claimed since the look.
        ChangelogUnsafe: there is a topic of that name, with another configuration.
        Unavailable: Kafka is away; run it again.
    """
    app, found = lost.app, lost.remembered
    _require_stopped(kafka, app)
    newest = newest_claim(kafka, app)
    if newest is not None and newest.epoch != lost.newest:
        raise InvalidRequest(
            f"{app!r} was claimed at epoch {newest.epoch} since it was looked at: nothing was "
            f"written. Look again: 'holdfast repair topology {app}'",
            app=app,
            current=newest.epoch,
        )
    topic = [p for p in plan_topics(found.declared) if p.name == topology_topic(app)]
    ensure_topics(kafka.admin(), topic, replication, min_insync)
    _pass(kafka, app, lost.passed)
    failpoint("repair.topology_passed")
    by = {"at": now_ms(), "by": f"{user_name()}@{socket.gethostname()}", "epoch": found.epoch}
    extra = {**found.declared.extra, "repaired": by}
    return tell(kafka, app, app.encode(), found.declared.to_json() | {"extra": extra})


def _more_is_left(
    kafka: Kafka, remembered: Sequence[Remembered], newest: Claim, topic_id: str
) -> bool:
    """Whether hosts remember a newer claim, of another topic, whose changelogs hold records.

    Its tasks have no markers any more: a repair of the changelogs brings them back.
    """
    older = [r for r in remembered if r.topic_id != topic_id and r.epoch >= newest.epoch]
    logs = [changelog_topic(r.declared.app, s.name) for r in older for s in r.declared.stores]
    there = describe(kafka.admin(), list(dict.fromkeys(logs))) if logs else {}
    every = [(name, p) for name, facts in there.items() for p in range(facts.partitions)]
    return any(ends(kafka.admin(), every).values()) if every else False


def _remembered(app: str, held: Iterable[Held]) -> Iterator[Remembered]:
    for one in held:
        said = one.apps.get(app, {}).get("declared")
        if said is None:  # away, without the application, or older than this request
            continue
        topology = Topology.from_json(said)
        epoch, topic_id = (topology.extra.get(name) for name in _LEARNED)
        extra = {k: v for k, v in topology.extra.items() if k not in _LEARNED}
        declared = replace(topology, extra=extra)
        yield Remembered(one.host, -1 if epoch is None else int(epoch), topic_id or "", declared)


def _forgotten(app: str, stands_at: int, epochs: Sequence[int], held: Sequence[Held]) -> NotFound:
    away = [f"{one.host} ({one.away})" for one in held if one.away is not None]
    asked = f" Not asked: {', '.join(away)}: start them, and run this again." if away else ""
    if stands_at < 0 and not away:
        return NotFound(f"no application {app!r} on these brokers and hosts", app=app)
    seen = f"epoch {max(epochs)} at most" if epochs else "nothing of it"
    return NotFound(
        f"tasks of {app!r} stand at epoch {stands_at}, and the hosts remember {seen}: what its "
        f"driver declared is lost.{asked} If no host has it any more, begin anew: 'holdfast app "
        f"reset {app}'",
        app=app,
        current=stands_at,
        away=[one.host for one in held if one.away is not None],
    )


def _require_left(kafka: Kafka, declared: Topology) -> None:
    """Without markers it may as well be a deleted application that a host still remembers."""
    logs = [changelog_topic(declared.app, store.name) for store in declared.stores]
    if not describe(kafka.admin(), [*logs, commits_topic(declared.app)]):
        raise NotFound(
            f"nothing of application {declared.app!r} is left in Kafka: it was deleted. Hosts let "
            f"go of it by 'holdfast app delete {declared.app}'",
            app=declared.app,
        )


def _require_stopped(kafka: Kafka, app: str) -> None:
    if drivers := living_drivers(kafka, app):
        raise InvalidRequest(
            f"{app!r} has a living driver ({', '.join(drivers)}): stop it ('holdfast stop {app}') "
            f"and whatever starts it again, then run 'holdfast repair topology {app}' again. (A "
            "driver that was killed counts for some seconds more)",
            app=app,
            drivers=list(drivers),
        )


def _pass(kafka: Kafka, app: str, offset: int) -> None:
    """Fill the topic up to an offset with messages that nobody reads, compacted to one."""
    at = (topology_topic(app), 0)
    missing = offset + 1 - ends(kafka.admin(), [at])[at]
    body: dict[str, Any] = {"passed": offset}
    while missing > 0:
        tell(kafka, app, PASSED, body, times=min(missing, _AT_ONCE))
        missing -= _AT_ONCE
