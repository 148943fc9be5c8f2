"""What ``holdfast repair`` asks, runs and prints."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import orjson
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from state_lib.apps.catalogue import find
from state_lib.apps.losses import concerns, find_losses, repair_losses
from state_lib.apps.restoring import require_tasks
from state_lib.changelog.claims import topology_of
from state_lib.cli._tables import table
from state_lib.config import Settings
from state_lib.errors import HoldfastError
from state_lib.kafka import Kafka
from state_lib.logs import configure_logging
from state_lib.task.loss import Loss


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
        kafka = Kafka.of(self._settings)
        find(kafka, app)
        topology = topology_of(kafka, app)
        self._app, self._tasks = app, require_tasks(topology, tasks)
        self._stores = [topology.required(s).name for s in stores or ()] or None
        self._json = as_json
        self._out = threading.Lock()
        self._failed = False

    def show(self) -> list[Loss]:
        """Ask every host, print what is lost; returns what can be repaired.

        Raises:
            typer.Exit: 0 if nothing is lost; 1 if nothing of it can be repaired.
        """
        found, failures = find_losses(self._settings, self._app, self._tasks)
        for task, error in failures.items():
            self._fail(f"{task}: {error.message}", task, error)
        lost = [loss for loss in found if concerns(loss, self._app, self._stores)]
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
        bars = _Bars()
        with nullcontext() if self._json else bars:

            def watch(task: str, event: Mapping[str, Any]) -> None:
                if event["event"] == "failed":
                    self._fail(f"{task}: {event['message']}", task, event)
                elif self._json:
                    self._line(event)
                else:
                    bars.event(event)

            tasks = [loss.task for loss in work]
            repair_losses(self._settings, self._app, tasks, watch, self._stores)
        if self._failed:
            raise typer.Exit(1)
        if not self._json:
            typer.echo(f"repaired {len(work)} tasks of {self._app}")

    # ------------------------------------------------------------------ inside

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
        app = self._app
        text = (
            f"No snapshot is of that very commit either ('holdfast snapshot list {app}'). If a "
            "host that is not in HOLDFAST_HOSTS has a newer copy, put it back; or begin anew: "
            f"'holdfast app reset {app}'"
        )
        Console(stderr=True, soft_wrap=True).print(text, markup=False, highlight=False)

    def _line(self, event: Mapping[str, Any]) -> None:
        with self._out:
            typer.echo(orjson.dumps(event).decode())

    def _fail(
        self, text: str, task: str, error: HoldfastError | Mapping[str, Any] | None = None
    ) -> None:
        self._failed = True
        if self._json:
            wire = error.to_wire() if isinstance(error, HoldfastError) else error
            self._line({"event": "failed", "task": task, **(wire or {"message": text})})
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

    def event(self, event: Mapping[str, Any]) -> None:
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
