"""Runs plans on their hosts, with a bar for each task."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from state_lib.client.flight import FlightHostClient
from state_lib.config import Settings
from state_lib.errors import HoldfastError
from state_lib.host.placement import owner_of
from state_lib.restore.plan import RestorePlan

_AT_ONCE = 16


def run_plans(app: str, plans: Sequence[RestorePlan], *, as_json: bool) -> None:
    """Run all plans side by side, and show how they go.

    Raises:
        typer.Exit: 1, after all others have ended, if one failed.
    """
    if not plans:
        return
    settings = Settings.load()
    token = settings.read_token()
    show = _Lines() if as_json else _Bars(plans)

    def one(plan: RestorePlan) -> bool:
        partition = int(plan.task.rpartition("/")[2])
        client = FlightHostClient(owner_of(app, partition, settings.host_addresses), token)
        started = time.monotonic()
        try:
            for event in client.restore_run(app, partition, plan.to_json()):
                show.event(plan, event)
        except HoldfastError as error:
            show.failed(plan, error)
            return False
        finally:
            client.close()
        show.done(plan, time.monotonic() - started)
        return True

    with show, ThreadPoolExecutor(min(_AT_ONCE, len(plans))) as pool:
        results = list(pool.map(one, plans))
    if not all(results):
        raise typer.Exit(1)


class _Lines:
    """Events as JSON, one a line."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        return

    def __exit__(self, *_: object) -> None:
        return

    def event(self, plan: RestorePlan, event: dict[str, Any]) -> None:
        del plan
        with self._lock:
            typer.echo(orjson.dumps(event))

    def done(self, plan: RestorePlan, seconds: float) -> None:
        del plan, seconds  # the host's last event says it

    def failed(self, plan: RestorePlan, error: HoldfastError) -> None:
        self.event(plan, {"event": "failed", "task": plan.task, **error.to_wire()})


class _Bars:
    """A bar for each task: records of what the plan expects."""

    def __init__(self, plans: Sequence[RestorePlan]) -> None:
        self._errors = Console(stderr=True, soft_wrap=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[about]}"),
            TimeElapsedColumn(),
        )
        self._bars: dict[str, TaskID] = {}
        self._at: dict[tuple[str, str], int] = {}
        self._records: dict[str, int] = {}
        for plan in plans:
            bar = self._progress.add_task(plan.task, total=_offsets(plan), about="")
            self._bars[plan.task] = bar

    def __enter__(self) -> None:
        self._progress.start()

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def event(self, plan: RestorePlan, event: dict[str, Any]) -> None:
        bar = self._bars[plan.task]
        if event["event"] == "fetch":
            done, total = event["done"], event["total"]
            about = f"snapshot: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB"
            self._progress.update(bar, completed=done, total=total, about=about)
            if done == total:
                self._progress.reset(bar, total=_offsets(plan))
        elif event["event"] == "start":
            self._at[plan.task, event["store"]] = event["start"]
            self._progress.update(bar, about=event["store"])
        elif event["event"] == "batch":
            before = self._at.get((plan.task, event["store"]), event["offset"])
            self._at[plan.task, event["store"]] = event["offset"]
            records = self._records.get(plan.task, 0) + event["records"]
            self._records[plan.task] = records
            about = f"{event['store']}: {records:,} records"
            self._progress.update(bar, advance=max(0, event["offset"] - before), about=about)

    def done(self, plan: RestorePlan, seconds: float) -> None:
        bar, records = self._bars[plan.task], self._records.get(plan.task, 0)
        rate = f", {records / seconds:,.0f}/s" if records else ""
        about = f"{records:,} records{rate}"
        self._progress.update(bar, completed=_offsets(plan), about=about)

    def failed(self, plan: RestorePlan, error: HoldfastError) -> None:
        self._progress.update(self._bars[plan.task], about="failed")
        text = f"{plan.task}: {error.message}"
        self._errors.print(text, style="red", markup=False, highlight=False)


def _offsets(plan: RestorePlan) -> int:
    return sum(s.end - s.start for s in plan.steps) or 1
