"""Speaks to hosts over Arrow Flight: claim, scan, and the exchange of one task and batch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import flight

from state_lib.client.exchange import Exchange, closing_call
from state_lib.client.stories import silence, told
from state_lib.client.watch import Watch
from state_lib.errors import HoldfastError, Unavailable
from state_lib.protocol.addresses import HostAddress
from state_lib.protocol.marker import Marker
from state_lib.protocol.wire import MARKER_KEY, TOKEN_HEADER, UP, from_flight, pack, unpack
from state_lib.specs import Topology

LOOK_S, PLAN_S, FORGET_S, READ_S = 30.0, 120.0, 300.0, 3600.0
"""How long a host may take to say what it has, to plan a restore, to close and remove a task, to
read all of one. A host that is stopped or hangs keeps its connections: without a bound whoever
asks it would wait for ever."""
EXCHANGE_S = 300.0


class FlightHostClient:
    """A connection to one host; made on first use. Not for use by several threads at once."""

    def __init__(self, address: HostAddress, token: str | None) -> None:
        self.address, self._token = address, token
        self._where = f"{address.id} ({address.host}:{address.flight_port})"
        self._headers = (
            [] if token is None else [(TOKEN_HEADER.encode(), f"Bearer {token}".encode())]
        )
        self._client: flight.FlightClient | None = None

    def claim(self, app: str, partition: int, epoch: int, topic_id: str | None = None) -> Marker:
        """Take a task for the driver of an epoch.

        Args:
            app: its application.
            partition: of the task.
            epoch: of the driver's claim.
            topic_id: of the topology topic that holds the claim; without it, the host asks Kafka.

        Raises:
            Superseded: a newer driver has it.
            Unavailable: the host cannot be reached, or the task is opening; try again.
        """
        body = {"app": app, "partition": partition, "epoch": epoch, "topic_id": topic_id}
        return Marker.from_json(self._act("claim", body, LOOK_S))

    def marker(self, app: str, partition: int, timeout_s: float = LOOK_S) -> Marker:
        """Where a task stands."""
        body = {"app": app, "partition": partition}
        return Marker.from_json(self._act("marker", body, timeout_s))

    def topology(self, app: str, timeout_s: float = LOOK_S) -> Topology:
        """An application as its newest claim, of those that the host knows, declares it.

        Raises:
            NotFound: the host does not know it; lists those that it knows.
            Unavailable: the host cannot be reached, or does not know all of its applications yet.
        """
        return Topology.from_json(self._act("topology", {"app": app}, timeout_s))

    def holdings(
        self, app: str | None = None, timeout_s: float = LOOK_S, *, brief: bool = False
    ) -> dict[str, Any]:
        """What the host holds of an application, or of all: see `state_lib.host.holdings`."""
        return self._act("holdings", {"app": app, "brief": brief}, timeout_s)

    def forget(self, app: str, epoch: int) -> dict[str, Any]:
        """Let the host close the tasks of an application and remove its directory.

        Args:
            app: its id.
            epoch: of the notice of its reset or deletion; -1 if its topology topic is gone.

        Raises:
            InvalidRequest: that is not its newest claim.
            Unavailable: the host cannot be reached, or its tasks did not close in time.
        """
        return self._act("forget", {"app": app, "epoch": epoch}, FORGET_S)

    def restore_plan(self, app: str, partition: int, wanted: str | None = None) -> dict[str, Any]:
        """What a restore of a task would do, as `state_lib.restore.plan.RestorePlan` in JSON.

        Raises:
            Busy: the task is opening or restoring.
            InvalidRequest: ``wanted`` is not a valid source of this task; says why.
        """
        body = {"app": app, "partition": partition, "wanted": wanted}
        return self._act("restore-plan", body, PLAN_S)

    def restore_run(
        self, app: str, partition: int, plan: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        """Run a plan; yields events until ``done``, however long that takes.

        A caller that leaves does not end the restore.

        Raises:
            Busy: a restore of this task is running already.
            InvalidRequest: the plan's source is not valid any more.
            Unavailable: the host, Kafka or the disk is away.
        """
        return self._events("restore-run", {"app": app, "partition": partition, "plan": plan})

    def restore_start(self, app: str, partition: int, plan: dict[str, Any]) -> dict[str, Any]:
        """Begin a restore and leave, or find the one of this very plan, running or done.

        How it goes: ``GET /v1/apps/{app}/tasks/{partition}/restore``, which answers the same.

        Raises:
            Busy: a restore by another plan is running.
            Unavailable: the host is away.
        """
        body = {"app": app, "partition": partition, "plan": plan}
        return self._act("restore-start", body, LOOK_S)

    def past_plan(
        self, app: str, partition: int, snapshot: str, *, republish: bool
    ) -> dict[str, Any]:
        """What going back would mean, as `state_lib.restore.past.PastPlan` in JSON.

        Raises:
            NotFound, SnapshotInvalid, InvalidRequest, TopicRecreated: it cannot; says why.
            Unavailable: the host, Kafka or the storage is away.
        """
        body = {"app": app, "partition": partition, "snapshot": snapshot, "republish": republish}
        return self._act("past-plan", body, PLAN_S)

    def past_fetch(self, app: str, partition: int, snapshot: str) -> Iterator[dict[str, Any]]:
        """Bring a snapshot to a task's host; yields events until ``done``. Raises as `past_run`."""
        body = {"app": app, "partition": partition, "snapshot": snapshot}
        return self._events("past-fetch", body)

    def past_run(self, app: str, partition: int, past: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Go back in time; yields events until ``done``, however long that takes.

        A caller that leaves does not end it.

        Args:
            app: application.
            partition: of the task.
            past: `state_lib.task.past.Past` in JSON.

        Raises:
            Superseded: a driver has claimed the task since the epoch was taken.
            Busy: a restore of this task is running already.
            Others: as `past_plan`.
        """
        return self._events("past-run", {"app": app, "partition": partition, "past": past})

    def loss(self, app: str, partition: int) -> dict[str, Any]:
        """What a task's topics lost, as `state_lib.task.loss.Loss` in JSON.

        Raises:
            Busy: the task is opening or restoring.
            Unavailable: the host or Kafka is away.
        """
        return self._act("loss", {"app": app, "partition": partition}, PLAN_S)

    def repair_run(
        self, app: str, partition: int, stores: Sequence[str] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Write lost topics of a task anew; yields events until ``done``, however long it takes.

        A caller that leaves does not end it.

        Raises:
            NotRepairable: says why.
            Busy, Unavailable: try again.
        """
        body = {"app": app, "partition": partition, "stores": stores}
        return self._events("repair-run", body)

    def snapshot(
        self,
        app: str,
        partition: int,
        savepoint: Mapping[str, Any] | None = None,
        request: str | None = None,
        timeout_s: float = LOOK_S,
    ) -> dict[str, Any]:
        """Begin a snapshot of a task, or join the one under way.

        Args:
            app: application.
            partition: of the task.
            savepoint: ``{id, epoch, n, wait_s}``: take it at that very commit.
            request: id of this request: the same one again finds what it has led to.
            timeout_s: how long the host may take to say so.

        Returns:
            What `snapshot_status` returns.
        """
        body = {"app": app, "partition": partition, "savepoint": savepoint, "request": request}
        return self._act("snapshot", body, timeout_s)

    def snapshot_status(
        self, app: str, partition: int, timeout_s: float = LOOK_S
    ) -> dict[str, Any]:
        """How the last snapshot of a task goes: `state_lib.host.snapshots.Job.to_json`."""
        return self._act("snapshot-status", {"app": app, "partition": partition}, timeout_s)

    def digests(
        self, app: str, partition: int, stores: Sequence[str] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Digests of a task's stores, as `state_lib.host.digests` tells them."""
        body = {"app": app, "partition": partition, "stores": stores}
        return self._events("digest", body, READ_S)

    def scan(
        self, app: str, partition: int, store: str, keys: Sequence[bytes] | None = None
    ) -> tuple[Marker, Iterator[pa.RecordBatch]]:
        """A store's live entries as stored, all at the marker that comes with them.

        Args:
            app: application.
            partition: of the task.
            store: name.
            keys: serialized ones, of windows the inner ones; None for all.
        """
        request: dict[str, Any] = {"app": app, "partition": partition, "store": store}
        if keys is not None:
            request["keys"] = [key.hex() for key in keys]
        ticket = flight.Ticket(pack(request))
        with self._errors():
            reader = self._connected().do_get(ticket, self._within(READ_S))
            marker = Marker.from_bytes(reader.schema.metadata[MARKER_KEY])
        return marker, self._chunks(reader)

    def answers(self, timeout_s: float) -> bool:
        """Whether the host answers at all in that time: with a refusal, too."""
        try:
            self._act("ping", {}, timeout_s)
        except Unavailable:
            return False
        except HoldfastError:
            return True
        return True

    @contextlib.contextmanager
    def exchange(
        self,
        app: str,
        partition: int,
        epoch: int,
        batch_number: int,
        timeout_s: float = EXCHANGE_S,
        silent_s: float | None = None,
    ) -> Iterator[Exchange]:
        """Open the exchange of one task and batch; all of it has to be done in ``timeout_s``.

        Args:
            app: application.
            partition: of the task.
            epoch: of the driver.
            batch_number: of the batch.
            timeout_s: in all.
            silent_s: for how long the host may answer nobody meanwhile; None: as long.

        Raises:
            Superseded, Unavailable, NotOwner: see `state_lib.errors`.
        """
        request = {"app": app, "partition": partition, "epoch": epoch, "n": batch_number}
        descriptor = flight.FlightDescriptor.for_command(pack(request))
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._errors())
            writer, reader = self._connected().do_exchange(descriptor, self._within(timeout_s))
            if silent_s is not None:
                stack.enter_context(self._watching(silent_s, reader.cancel))
            stack.enter_context(closing_call(writer))
            writer.begin(UP)
            first = unpack(reader.read_chunk().app_metadata)
            yield Exchange(writer, reader, first)

    @contextlib.contextmanager
    def _watching(self, silent_s: float, end: Callable[[], None]) -> Iterator[None]:
        """Let ``end`` be called if the host is silent; what fails by that is Unavailable."""
        other = FlightHostClient(self.address, self._token)
        watch = Watch(other, silent_s, end)
        try:
            with watch:
                yield
        except (flight.FlightError, pa.ArrowException, OSError, StopIteration) as error:
            if watch.is_silent:
                self.close()
                raise Unavailable(
                    f"host {self._where} has not answered for {silent_s:g} s in the middle of an "
                    "exchange",
                    host=self._where,
                ) from error
            raise

    def close(self) -> None:
        """Drop the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _within(self, timeout_s: float | None) -> flight.FlightCallOptions:
        return flight.FlightCallOptions(timeout=timeout_s, headers=self._headers)

    def _act(self, name: str, body: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        with self._errors():
            action = flight.Action(name, pack(body))
            result = next(iter(self._connected().do_action(action, self._within(timeout_s))))
            return unpack(result.body)

    def _events(
        self, name: str, body: dict[str, Any], timeout_s: float | None = None
    ) -> Iterator[dict[str, Any]]:
        """What the host tells one by one; Unavailable once it answers nobody any more."""
        action, client = flight.Action(name, pack(body)), self._connected()

        def begin() -> Iterator[dict[str, Any]]:
            results = client.do_action(action, self._within(timeout_s))
            return (unpack(result.body) for result in results)

        silent = silence(name, body["app"], body["partition"], self._where)
        with self._errors():
            try:
                yield from told(begin, FlightHostClient(self.address, self._token), silent)
            except Unavailable:
                self._client = None  # not closed, as a thread is waiting in it
                raise

    def _chunks(self, reader: Any) -> Iterator[pa.RecordBatch]:
        with self._errors():
            for chunk in reader:
                yield chunk.data

    def _connected(self) -> flight.FlightClient:
        if self._client is None:
            location = f"grpc://{self.address.host}:{self.address.flight_port}"
            self._client = flight.FlightClient(location)
        return self._client

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (flight.FlightError, OSError) as error:
            self.close()
            raise from_flight(error, self._where) from error
        except StopIteration as error:
            self.close()
            raise from_flight(error, self._where) from error
