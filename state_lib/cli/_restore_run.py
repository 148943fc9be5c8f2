"""Runs plans on their hosts, with a bar for each task."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import orjson
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from state_lib.apps.restoring import run_plans
from state_lib.config import Settings
from state_lib.restore.plan import RestorePlan


def show_run(settings: Settings, app: str, plans: Sequence[RestorePlan], *, as_json: bool) -> None:
    """Run all plans side by side, and show how they go.

    Raises:
        typer.Exit: 1, after all others have ended, if one failed.
    """
    if not plans:
        return
    show = _Lines() if as_json else _Bars(plans)
    with show:
        failures = run_plans(settings, app, plans, show.event)
    if failures:
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
        self._started = 0.0
        for plan in plans:
            bar = self._progress.add_task(plan.task, total=_offsets(plan), about="")
            self._bars[plan.task] = bar

    def __enter__(self) -> None:
        self._started = time.monotonic()
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
        elif event["event"] == "done":
            self._done(plan)
        elif event["event"] == "failed":
            self._progress.update(bar, about="failed")
            text = f"{plan.task}: {event['message']}"
            self._errors.print(text, style="red", markup=False, highlight=False)

    def _done(self, plan: RestorePlan) -> None:
        records, seconds = self._records.get(plan.task, 0), time.monotonic() - self._started
        rate = f", {records / seconds:,.0f}/s" if records else ""
        about = f"{records:,} records{rate}"
        self._progress.update(self._bars[plan.task], completed=_offsets(plan), about=about)


def _offsets(plan: RestorePlan) -> int:
    return sum(s.end - s.start for s in plan.steps) or 1
