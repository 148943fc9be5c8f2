"""What ``holdfast repair`` asks, runs and prints."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from typing import Any, TypeVar

import orjson
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from state_lib.apps.catalogue import find
from state_lib.apps.restoring import require_tasks
from state_lib.changelog.admin import ensure_topics
from state_lib.changelog.claims import topology_of
from state_lib.changelog.topics import changelog_topic, commits_topic, plan_topics
from state_lib.cli._tables import table
from state_lib.client.flight import FlightHostClient
from state_lib.config import Settings
from state_lib.errors import HoldfastError
from state_lib.host.placement import owner_of
from state_lib.kafka import Kafka
from state_lib.logs import configure_logging
from state_lib.task.loss import Loss

_AT_ONCE = 8
T = TypeVar("T")


class Repairs:
    """The tasks that were asked for.

    Raises:
        NotFound: no such application or store.
        InvalidRequest: it has no such task.
    """

    def __init__(
        self, app: str, tasks: Sequence[int] | None, stores: Sequence[str] | None, *, as_json: bool
    ) -> None:
        self._settings = Settings.load()
        configure_logging("ERROR")
        self._kafka = Kafka.of(self._settings)
        find(self._kafka, app)
        self._topology = topology_of(self._kafka, app)
        self._tasks = require_tasks(self._topology, tasks)
        self._stores = [self._topology.required(s).name for s in stores or ()] or None
        self._json = as_json
        self._token = self._settings.read_token()
        self._out = threading.Lock()
        self._failed = False

    def show(self) -> list[Loss]:
        """Ask every host, print what is lost; returns what can be repaired.

        Raises:
            typer.Exit: 0 if nothing is lost; 1 if nothing of it can be repaired.
        """
        found = [x for x in self._each(self._tasks, self._ask) if x is not None]
        lost = [loss for loss in found if self._wanted(loss)]
        if self._json:
            for loss in found:
                self._line({"event": "loss", **loss.to_json()})
        elif lost:
            Console().print(self._table(lost))
        for loss in lost:
            if loss.why_not is not None:
                self._fail(f"{loss.task} cannot be repaired: {loss.why_not}", loss.task)
        work = [loss for loss in lost if loss.why_not is None]
        if not lost and not self._failed and not self._json:
            typer.echo(f"nothing to repair: the topics of {len(found)} tasks are whole")
        if not work:
            if any(loss.why_not for loss in lost):
                self._ways_out()
            raise typer.Exit(int(self._failed))
        return work

    def run(self, work: Sequence[Loss]) -> None:
        """Create what does not exist, and let the hosts write.

        Raises:
            typer.Exit: 1, after all others have ended, if one failed.
        """
        self._create()
        bars = _Bars()
        with nullcontext() if self._json else bars:

            def one(loss: Loss) -> None:
                with closing(self._client(_partition(loss))) as client:
                    where = self._topology.app, _partition(loss)
                    for event in client.repair_run(*where, self._stores):
                        self._line(event) if self._json else bars.event(event)

            self._each(work, one)
        if self._failed:
            raise typer.Exit(1)
        if not self._json:
            typer.echo(f"repaired {len(work)} tasks of {self._topology.app}")

    # ------------------------------------------------------------------ inside

    def _client(self, partition: int) -> FlightHostClient:
        at = owner_of(self._topology.app, partition, self._settings.host_addresses)
        return FlightHostClient(at, self._token)

    def _ask(self, partition: int) -> Loss:
        with closing(self._client(partition)) as client:
            return Loss.from_json(client.loss(self._topology.app, partition))

    def _each(self, what: Sequence[Any], action: Callable[[Any], T]) -> list[T | None]:
        """Side by side; a failure is printed, and is None."""

        def one(item: Any) -> T | None:
            try:
                return action(item)
            except HoldfastError as error:
                name = item.task if isinstance(item, Loss) else f"{self._topology.app}/{item}"
                self._fail(f"{name}: {error.message}", name, error)
                return None

        with ThreadPoolExecutor(min(_AT_ONCE, len(what))) as pool:
            return list(pool.map(one, what))

    def _wanted(self, loss: Loss) -> bool:
        app = self._topology.app
        if self._stores is None:
            return bool(loss.topics)
        wanted = {commits_topic(app), *(changelog_topic(app, s) for s in self._stores)}
        return bool(wanted & set(loss.topics))

    def _create(self) -> None:
        owned = [
            plan
            for plan in plan_topics(self._topology)
            if plan.store is not None or plan.name == commits_topic(self._topology.app)
        ]
        replication, least = self._settings.replication_factor, self._settings.min_insync_replicas
        ensure_topics(self._kafka.admin(), owned, replication, least)

    def _table(self, lost: Sequence[Loss]) -> Any:
        return table(
            {
                "task": loss.task,
                "host": loss.host,
                "topic": topic,
                "seen": why,
                "copy": loss.snapshot or ("none" if loss.copy is None else "local"),
                "at": "" if loss.copy is None else f"{loss.copy[0]}/{loss.copy[1]}",
                "verdict": "lost" if loss.why_not else "repairable",
            }
            for loss in lost
            for topic, why in loss.topics.items()
        )

    def _ways_out(self) -> None:
        if self._json:
            return
        app = self._topology.app
        text = (
            f"No snapshot is of that very commit either ('holdfast snapshot list {app}'). If a "
            "host that is not in HOLDFAST_HOSTS has a newer copy, put it back; or begin anew: "
            f"'holdfast app reset {app}'"
        )
        Console(stderr=True, soft_wrap=True).print(text, markup=False, highlight=False)

    def _line(self, event: dict[str, Any]) -> None:
        with self._out:
            typer.echo(orjson.dumps(event).decode())

    def _fail(self, text: str, task: str, error: HoldfastError | None = None) -> None:
        self._failed = True
        if self._json:
            wire = {"message": text} if error is None else error.to_wire()
            self._line({"event": "failed", "task": task, **wire})
        else:
            errors = Console(stderr=True, soft_wrap=True)
            errors.print(text, style="red", markup=False, highlight=False)


class _Bars(Progress):
    """A bar for each store that is written or read back, on standard error."""

    def __init__(self) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f} records"),
            TimeElapsedColumn(),
        )
        super().__init__(*columns, console=Console(stderr=True))
        self._rows: dict[tuple[str, str], TaskID] = {}

    def event(self, event: dict[str, Any]) -> None:
        """Draw one event of a host."""
        kind = event["event"]
        if kind not in ("start", "batch", "end"):
            return
        key = (event["task"], event["store"])
        if kind == "start":
            total = event["end"] - event["start"] or None
            self._rows[key] = self.add_task(f"{key[0]} {key[1]}", total=total)
        elif kind == "batch":
            self.advance(self._rows[key], event["records"])
        else:
            done = event["records"]
            self.update(self._rows[key], completed=done, total=done or 1)


def _partition(loss: Loss) -> int:
    return int(loss.task.rpartition("/")[2])
