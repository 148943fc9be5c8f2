"""The bulk side of a host: exchanges of executors, scans, claims."""

from __future__ import annotations

import contextlib
import hmac
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import structlog
from pyarrow import flight

from state_lib.errors import HoldfastError, InvalidRequest, Superseded, Unauthorized
from state_lib.host.digests import digests
from state_lib.host.exchange import TaskExchange, is_done
from state_lib.host.holdings import forget, holdings
from state_lib.host.restores import (
    fetch_past,
    find_loss,
    plan_restore,
    run_past,
    run_repair,
    run_restore,
    start_restore,
)
from state_lib.host.snapshots import At, SnapshotJobs
from state_lib.host.tasks import TaskManager
from state_lib.protocol.marker import CommitHeader, Marker, overtaken
from state_lib.protocol.wire import DOWN, MARKER_KEY, SCAN, TOKEN_HEADER, pack, to_flight, unpack
from state_lib.restore.plan import AUTO, RestorePlan
from state_lib.stores.columns import Columns
from state_lib.task import StateTask
from state_lib.task.past import Past
from state_lib.task.scans import scan_columns

log = structlog.get_logger(__name__)
Body = dict[str, Any]


class FlightHost(flight.FlightServerBase):  # type: ignore[misc]
    """Serves the tasks of a `TaskManager`.

    Args:
        manager: the tasks.
        location: ``grpc://host:port``.
        token: required as a bearer token in every call, unless None.
        snapshots: takes them.
    """

    def __init__(
        self, manager: TaskManager, location: str, token: str | None, snapshots: SnapshotJobs
    ) -> None:
        self._manager = manager
        self._actions: dict[str, Callable[[Body], Body]] = {
            **{name: partial(act, manager) for name, act in _ACTIONS.items()},
            "snapshot": partial(_snapshot, snapshots),
            "snapshot-status": lambda body: snapshots.status(body["app"], int(body["partition"])),
        }
        super().__init__(location, middleware={"token": _TokenFactory(token)})

    def do_exchange(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        """One task, one batch: gets, then one commit."""
        del context
        with _wired():
            request = unpack(descriptor.command)
            app, partition = request["app"], int(request["partition"])
            task = self._manager.task(app, partition, learn=True)
            marker = _check_epoch(self._manager, task, request)
            writer.begin(DOWN)
            if is_done(marker, request["epoch"], request["n"]):
                writer.write_metadata(pack({"op": "already", "marker": marker.to_json()}))
                for _ in reader:  # if the call ends before its first message, the answer is lost
                    pass
                return
            writer.write_metadata(pack({"op": "go", "marker": marker.to_json()}))
            _Exchange(task, reader, writer).run()

    def do_get(
        self, context: flight.ServerCallContext, ticket: flight.Ticket
    ) -> flight.FlightDataStream:
        """Scan one store of one task, all of it or some keys, at its current marker."""
        del context
        with _wired():
            request = unpack(ticket.ticket)
            task = self._manager.task(request["app"], int(request["partition"]))
            keys = request.get("keys")
            wanted = None if keys is None else list(map(bytes.fromhex, keys))
            marker, parts = scan_columns(task, request["store"], wanted)
            schema = SCAN.with_metadata({MARKER_KEY: marker.to_bytes()})
            return flight.GeneratorStream(schema, _batches(parts, schema))

    def do_action(
        self, context: flight.ServerCallContext, action: flight.Action
    ) -> Iterator[flight.Result]:
        """One of `_ACTIONS`, or of `_STORIES`, whose results come one by one."""
        del context
        with _wired():
            body = unpack(action.body) if action.body else {}
            if action.type in _STORIES:
                return _told(_STORIES[action.type](self._manager, body))
            act = self._actions.get(action.type)
            if act is None:
                known = sorted([*self._actions, *_STORIES])
                raise InvalidRequest(f"unknown action {action.type!r}; known: {known}", known=known)
            return iter([flight.Result(pack(act(body)))])


def _told(messages: Iterator[Body]) -> Iterator[flight.Result]:
    with _wired():
        for message in messages:
            yield flight.Result(pack(message))


def _claim(manager: TaskManager, body: Body) -> Body:
    """Take a task for the driver of an epoch."""
    where = body["app"], int(body["partition"])
    return manager.claim(*where, int(body["epoch"]), body.get("topic_id")).to_json()


def _marker(manager: TaskManager, body: Body) -> Body:
    """Where a task stands."""
    return manager.task(body["app"], int(body["partition"])).marker.to_json()


def _plan(manager: TaskManager, body: Body) -> Body:
    """What a restore of a task would do."""
    where = body["app"], int(body["partition"])
    return plan_restore(manager, *where, body.get("wanted") or AUTO).to_json()


def _plan_past(manager: TaskManager, body: Body) -> Body:
    """What it would mean for a task to go back to a snapshot."""
    task = manager.owned(body["app"], int(body["partition"]))
    return task.plan_past(body["snapshot"], republish=bool(body["republish"])).to_json()


def _snapshot(snapshots: SnapshotJobs, body: Body) -> Body:
    """Begin a snapshot of a task, join the one under way, or find the one that is there."""
    at = At.from_json(body.get("savepoint"))
    return snapshots.start(body["app"], int(body["partition"]), at, body.get("request"))


def _start_restore(manager: TaskManager, body: Body) -> Body:
    """Begin a restore, or find the one of this plan."""
    plan = RestorePlan.from_json(body["plan"])
    return start_restore(manager, body["app"], int(body["partition"]), plan)


def _restore(manager: TaskManager, body: Body) -> Iterator[Body]:
    """Run a restore; returns events."""
    plan = RestorePlan.from_json(body["plan"])
    return run_restore(manager, body["app"], int(body["partition"]), plan)


def _fetch_past(manager: TaskManager, body: Body) -> Iterator[Body]:
    """Fetch a snapshot to go back to; returns events."""
    return fetch_past(manager, body["app"], int(body["partition"]), body["snapshot"])


def _past(manager: TaskManager, body: Body) -> Iterator[Body]:
    """Restore a task to the past; returns events."""
    return run_past(manager, body["app"], int(body["partition"]), Past.from_json(body["past"]))


def _repair(manager: TaskManager, body: Body) -> Iterator[Body]:
    """Rewrite lost topics of a task; returns events."""
    return run_repair(manager, body["app"], int(body["partition"]), body["stores"])


def _digest(manager: TaskManager, body: Body) -> Iterator[Body]:
    """Digests of a task's stores."""
    return digests(manager.task(body["app"], int(body["partition"])), body["stores"])


_ACTIONS: dict[str, Callable[[TaskManager, Body], Body]] = {
    "claim": _claim,
    "marker": _marker,
    "ping": lambda manager, body: {},  # noqa: ARG005 - that it answers is all
    "topology": lambda manager, body: manager.app(body["app"]).to_json(),
    "holdings": lambda manager, body: holdings(
        manager, body.get("app"), brief=bool(body.get("brief"))
    ),
    "restore-plan": _plan,
    "restore-start": _start_restore,
    "past-plan": _plan_past,
    "loss": lambda manager, body: find_loss(manager, body["app"], int(body["partition"])),
    "forget": lambda manager, body: forget(manager, body["app"], int(body["epoch"])),
}
_STORIES: dict[str, Callable[[TaskManager, Body], Iterator[Body]]] = {
    "digest": _digest,
    "past-fetch": _fetch_past,
    "past-run": _past,
    "repair-run": _repair,
    "restore-run": _restore,
}


class _Exchange:
    """Handles the messages of one exchange while they arrive."""

    def __init__(self, task: StateTask, reader: Any, writer: Any) -> None:
        self._task, self._reader, self._writer = TaskExchange(task), reader, writer

    def run(self) -> None:
        """Handle messages until the commit; an exchange that ends before it changes nothing."""
        task = self._task
        for chunk in self._reader:
            message, data = unpack(chunk.app_metadata), chunk.data
            match message["op"]:
                case "get":
                    column = task.get(message["store"], data.column("key"))
                    self._writer.write_batch(pa.record_batch([column], schema=DOWN))
                case "page":
                    lower, upper = _unhexed(message["lower"]), _unhexed(message["upper"])
                    page = task.page(message["store"], lower, upper, int(message["rows"]))
                    self._writer.write_batch(pa.record_batch([page.column()], schema=DOWN))
                case "put":
                    task.put(message["store"], *(data.column(i) for i in range(3)))
                case "output":
                    task.output(message["topic"], *(data.column(i) for i in range(3)))
                case "dead-letters":
                    task.dead_letters(data.column("value"))
                case "commit":
                    marker = task.commit(CommitHeader.from_json(message["header"]))
                    answer = pack({"op": "committed", "marker": marker.to_json()})
                    self._writer.write_metadata(answer)
                    return
                case other:
                    raise InvalidRequest(f"unknown operation {other!r} in an exchange")


def _unhexed(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _check_epoch(manager: TaskManager, task: StateTask, request: dict[str, Any]) -> Marker:
    """The task's marker; Superseded if a newer driver has it, or may have it any moment.

    A task that was parked is claimed later than others: what is known of the claim counts.
    """
    marker, epoch = task.marker, int(request["epoch"])
    said = manager.app(request["app"]).extra
    same = said.get("topic_id") == marker.claimed_in
    newest = said.get("epoch", -1) if same else -1
    if epoch < marker.epoch:
        raise overtaken(marker, epoch, {"epoch": epoch, "current": marker.epoch})
    if epoch < newest:
        raise Superseded(
            f"epoch {epoch} was superseded by epoch {newest}", epoch=epoch, current=newest
        )
    return marker


def _batches(parts: Iterator[Columns], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with _wired():
        for part in parts:
            yield pa.record_batch(list(part), schema=schema)


@contextlib.contextmanager
def _wired() -> Iterator[None]:
    """Turn our errors into Flight's on the way out; log what is not ours."""
    try:
        yield
    except HoldfastError as error:
        raise to_flight(error) from error
    except flight.FlightError:
        raise
    except Exception:
        log.exception("request failed")
        raise


class _Token(flight.ServerMiddleware):  # type: ignore[misc]
    """Nothing to do after the token was checked."""


class _TokenFactory(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    def __init__(self, token: str | None) -> None:
        self._expected = None if token is None else f"Bearer {token}".encode()

    def start_call(
        self, info: flight.CallInfo, headers: dict[str, list[str]]
    ) -> flight.ServerMiddleware | None:
        del info
        if self._expected is None:
            return None
        given = headers.get(TOKEN_HEADER, [""])[0].encode()
        if not hmac.compare_digest(given, self._expected):
            raise to_flight(
                Unauthorized(
                    "a bearer token is required: set HOLDFAST_TOKEN or HOLDFAST_TOKEN_FILE"
                )
            )
        return None
