"""Takes an application, or some of its tasks, back in time: for the command, and for operators.

Snapshots are fetched while the stream goes on; then its driver ends at a batch's edge, tasks go
back under a new epoch, and the driver's supervisor starts a new one, which waits for the tasks,
aligns them by the recorded batches, and goes on. Each task by itself has gone back or has not. If
this is killed, run it again.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import orjson
import xxhash

from state_lib.apps.moments import moment
from state_lib.apps.restoring import require_tasks
from state_lib.changelog.claims import RESTORE, newest_claim, tell, topology_of, user_name
from state_lib.changelog.topics import topology_topic
from state_lib.client.flight import FlightHostClient
from state_lib.config import Settings
from state_lib.drivers.control import ask_to_stop
from state_lib.drivers.members import living_drivers
from state_lib.errors import Busy, HoldfastError, InvalidRequest, Superseded, Unavailable
from state_lib.failpoints import failpoint
from state_lib.kafka import Kafka, require
from state_lib.protocol.marker import now_ms
from state_lib.protocol.placement import owner_of
from state_lib.protocol.positions import Positions
from state_lib.restore.past import PastPlan, reaching
from state_lib.task.past import Past
from state_lib.times import iso

_AT_ONCE, _TRIES, _ENDING_S, _LOOK_S = 16, 3, 30.0, 0.25
UNDER_WAY_S, _ASK_S = 900.0, 2.0
"""How long what an earlier try has begun is waited for; hosts are asked so often."""
Watch = Callable[[str, Mapping[str, Any]], None]
"""Told of a task, and of what happens to it."""
Events = Callable[[FlightHostClient, int], Iterator[Mapping[str, Any]]]
Check = Callable[[PastPlan], PastPlan]
"""Returns a plan, with more in it, or raises why it cannot be."""


@dataclass(frozen=True)
class Journey:
    """What going back means for an application.

    Attributes:
        app: its id.
        plans: of the tasks that go back.
        drivers: that live, and are asked to end first.
    """

    app: str
    plans: tuple[PastPlan, ...]
    drivers: tuple[str, ...]

    @property
    def id(self) -> str:
        """Where to, for who approves it: the stream may go on meanwhile, and it stays the same."""
        where = [[p.task, p.snapshot, p.republish] for p in self.plans if not p.is_nothing]
        return xxhash.xxh3_128_hexdigest(orjson.dumps([self.app, sorted(where)]))

    def to_json(self) -> dict[str, Any]:
        """As plain data: what JSON has, and nothing else."""
        said = {**asdict(self), "plans": [one.to_json() for one in self.plans]}
        plain: dict[str, Any] = orjson.loads(orjson.dumps(said))
        return plain

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Journey:
        """From plain data. Raises InvalidRequest for what is no journey of this Holdfast."""
        try:
            plans = tuple(PastPlan.from_json(one) for one in data["plans"])
            return cls(str(data["app"]), plans, tuple(data["drivers"]))
        except (KeyError, TypeError) as error:
            raise InvalidRequest(
                f"not a plan as 'holdfast restore plan APP --to … --json' prints it ({error!r})"
            ) from error


def plan(
    settings: Settings,
    app: str,
    to: str,
    tasks: Sequence[int] | None = None,
    *,
    republish: bool = False,
) -> Journey:
    """See what it would mean. Changes nothing.

    Args:
        settings: where Kafka, the hosts and the snapshots are.
        app: whose tasks.
        to: see `moment`.
        tasks: partitions; None or none: all.
        republish: whether outputs that were written are to be written again.

    Raises:
        InvalidRequest: there is no such task, or it cannot be done; says why, and what can.
        NotFound, SnapshotInvalid, TopicRecreated: as `moment` and `plan_past`.
        Unavailable: a host, Kafka or the storage is away.
    """
    kafka = Kafka.of(settings)
    topology = topology_of(kafka, app)
    wanted = require_tasks(topology, tasks)
    where = moment(settings.snapshots_url, topology, to, wanted, now_ms())

    plans = _plans(settings, app, where, partial(reaching, kafka), republish=republish)
    claim = newest_claim(kafka, app)
    _check_code(plans, None if claim is None else claim.by.get("code"), topology.partitions)
    return Journey(app, plans, living_drivers(kafka, app))


def carry_out(
    settings: Settings,
    journey: Journey,
    told: Callable[[str], None] = lambda _: None,
    watch: Watch = lambda _task, _event: None,
    request: str | None = None,
) -> None:
    """Do what a plan says. May be killed, and run again.

    Args:
        settings: as in `plan`.
        journey: from there.
        told: called with a line about each step.
        watch: called with events of hosts.
        request: id of this request: a task that has gone back for it does not go again, whatever
            was committed since then. None: the caller has just planned.

    Raises:
        InvalidRequest: somebody has taken a task elsewhere since it was planned; of a ``request``.
        Unavailable: a driver does not end, or claims again and again; or a host, Kafka or the
            storage is away.
        Busy: another restore to the past has come in between.
        HoldfastError: a task could not go back; all others have ended by then.
    """
    kafka, app = Kafka.of(settings), journey.app
    left = {_partition(p): p for p in journey.plans if not p.is_nothing}
    by, check = request or f"{user_name()}@{socket.gethostname()}", partial(reaching, kafka)
    if request is not None:
        left = _not_done(settings, app, left, request, check)
    if not left:
        return
    _each(settings, app, left, _fetched(app, left), watch)
    for number in range(1, _TRIES + 1):
        if ended := _end_drivers(kafka, settings, app):
            told(f"ended at a batch's edge: {', '.join(ended)}")
        failpoint("past.stopped")
        where, again = {p: one.snapshot for p, one in left.items()}, journey.plans[0].republish
        _plans(settings, app, where, check, republish=again)  # checks later commits, too
        epoch, topic_id = _new_epoch(kafka, app, by)
        failpoint("past.claimed")
        pasts = {
            partition: Past(one.snapshot, one.republish, epoch, topic_id, by)
            for partition, one in left.items()
        }
        failures = _each(settings, app, left, _gone_back(app, pasts), watch, Superseded)
        left = {p: one for p, one in left.items() if p in failures}
        if not left:
            return
        claim = newest_claim(kafka, app)
        if claim is None or claim.epoch < epoch:
            raise Busy(
                f"tasks {sorted(left)} of {app!r} were taken to another moment meanwhile: another "
                "restore to the past is under way. Ask again when it has ended",
                app=app,
                tasks=sorted(left),
            )
        if number == _TRIES:
            raise Unavailable(
                f"tasks {sorted(left)} of {app!r} did not go back: a driver has claimed them each "
                f"time. End whatever starts it, then ask again ({failures[min(left)].message})",
                app=app,
                tasks=sorted(left),
            )
        told(f"a driver has claimed tasks {sorted(left)} meanwhile: once more")


def _plans(
    settings: Settings, app: str, where: Mapping[int, str], check: Check, *, republish: bool
) -> tuple[PastPlan, ...]:
    """Of each partition to its snapshot, as its host says it, and ``check`` lets it pass."""

    def ask(partition: int, snapshot: str) -> PastPlan:
        with _host(settings, app, partition) as client:
            told = client.past_plan(app, partition, snapshot, republish=republish)
            return check(PastPlan.from_json(told))

    with ThreadPoolExecutor(min(_AT_ONCE, len(where))) as pool:
        return tuple(pool.map(ask, where, where.values()))


def _not_done(
    settings: Settings, app: str, planned: Mapping[int, PastPlan], request: str, check: Check
) -> dict[int, PastPlan]:
    """Those that did not go back for a request yet, once what an earlier try began has ended.

    Only they are checked: for the others, sources and batches may be gone already.

    Raises:
        InvalidRequest: somebody has taken one elsewhere since; or one cannot go back any more.
        Unavailable: one is on its way for too long; or as `plan`.
    """
    if not planned:
        return {}
    where = {partition: one.snapshot for partition, one in planned.items()}
    again = next(iter(planned.values())).republish
    deadline = time.monotonic() + UNDER_WAY_S
    while True:
        found = _plans(settings, app, where, lambda one: one, republish=again)
        for before, one in zip(planned.values(), found, strict=True):
            moved = (one.back_by, one.back_at) != (before.back_by, before.back_at)
            if moved and one.back_by != request:
                raise InvalidRequest(
                    f"{one.task} was taken back in time at {iso(one.back_at)} by {one.back_by}, "
                    "after this was planned: plan again",
                    task=one.task,
                    by=one.back_by,
                )
        under_way = [one.task for one in found if one.under_way and one.back_by == request]
        if not under_way:
            break
        if time.monotonic() > deadline:
            raise Unavailable(
                f"{', '.join(under_way)} are on their way back since an earlier try: look at the "
                f"logs of their hosts, and at 'holdfast stores {app}'",
                tasks=under_way,
            )
        time.sleep(_ASK_S)
    left = {_partition(one): one.snapshot for one in found if one.back_by != request}
    if not left:
        return {}
    return dict(zip(left, _plans(settings, app, left, check, republish=again), strict=True))


def _check_code(plans: Sequence[PastPlan], code: str | None, partitions: int) -> None:
    """Batches that only some tasks repeat must be of the present code: no driver would do it."""
    level = len({frozenset(Positions.of(p.positions).items()) for p in plans}) == 1
    if (level and len(plans) == partitions) or code is None:
        return
    if others := sorted({c for p in plans for c in p.codes} - {code}):
        raise InvalidRequest(
            f"batches since then were recorded by other code ({', '.join(others)}, the job is "
            f"{code} now), and not all tasks would repeat the same ones: rows could be lost or "
            "counted twice. Take all tasks back to one savepoint, or to a snapshot of after the "
            "change",
            codes=others,
            code=code,
        )


def _end_drivers(kafka: Kafka, settings: Settings, app: str) -> tuple[str, ...]:
    """Ask those that live to end for their supervisors to start new ones; wait until they have."""
    asked = living_drivers(kafka, app)
    if not asked:
        return ()
    ask_to_stop(kafka, app, why="a restore to the past was asked for", handover=True)
    patience = settings.stop_timeout_s + _ENDING_S
    deadline = time.monotonic() + patience
    while left := [d for d in living_drivers(kafka, app) if d in asked]:
        if time.monotonic() > deadline:
            raise Unavailable(
                f"driver {left[0]} of {app!r} was asked to end and still lives after "
                f"{patience:.0f} s: look at its log, end it, then ask again; nothing was changed",
                app=app,
                drivers=left,
            )
        time.sleep(_LOOK_S)
    return asked


def _new_epoch(kafka: Kafka, app: str, by: str) -> tuple[int, str]:
    """A number greater than the epoch of any driver until now, and the id of its topic."""
    topic = topology_topic(app)
    before = require(kafka.admin(), [topic])[topic].id
    epoch = tell(kafka, app, RESTORE, {"by": by, "at": now_ms()})
    after = require(kafka.admin(), [topic])[topic].id
    if before != after:
        raise Unavailable(
            f"topic {topic!r} was deleted and created again meanwhile (its id was {before}, is "
            f"{after}): look at 'holdfast repair topology {app}', then ask again",
            topic=topic,
        )
    return epoch, after


def _fetched(app: str, plans: Mapping[int, PastPlan]) -> Events:
    return lambda client, partition: client.past_fetch(app, partition, plans[partition].snapshot)


def _gone_back(app: str, pasts: Mapping[int, Past]) -> Events:
    return lambda client, partition: client.past_run(app, partition, pasts[partition].to_json())


def _each(
    settings: Settings,
    app: str,
    plans: Mapping[int, PastPlan],
    events: Events,
    watch: Watch,
    passing: type[HoldfastError] | tuple[()] = (),
) -> dict[int, HoldfastError]:
    """Let all tasks do it side by side; ``passing`` failures are returned, by partition.

    Raises:
        HoldfastError: the first other failure, once all have ended.
    """

    def one(partition: int) -> HoldfastError | None:
        tell_of = partial(watch, f"{app}/{partition}")
        try:
            with _host(settings, app, partition) as client:
                for event in events(client, partition):
                    tell_of(event)
        except HoldfastError as error:
            tell_of({"event": "failed", "task": f"{app}/{partition}", **error.to_wire()})
            return error
        return None

    with ThreadPoolExecutor(min(_AT_ONCE, len(plans))) as pool:
        results = dict(zip(plans, pool.map(one, plans), strict=True))
    failures = {p: error for p, error in results.items() if error is not None}
    for error in failures.values():
        if not isinstance(error, passing):
            raise error
    return failures


def _host(settings: Settings, app: str, partition: int) -> closing[FlightHostClient]:
    address = owner_of(app, partition, settings.host_addresses)
    return closing(FlightHostClient(address, settings.read_token()))


def _partition(one: PastPlan) -> int:
    return int(one.task.rpartition("/")[2])
