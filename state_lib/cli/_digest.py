"""What ``holdfast digest`` prints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import orjson
import typer
from rich.console import Console
from rich.progress import Progress as Bars
from rich.progress import SpinnerColumn, TaskID, TextColumn

from state_lib.cli._tables import table
from state_lib.digests.compare import Compared, Comparison
from state_lib.digests.live import Digests, Progress
from state_lib.times import iso


@contextmanager
def following() -> Iterator[Progress]:
    """A line per task on a terminal's standard error: what is read, and how much of it was."""
    lock, lines = Lock(), dict[str, tuple[TaskID, str]]()
    text = TextColumn("{task.description} {task.completed:,.0f}")
    console = Console(stderr=True)
    with Bars(SpinnerColumn(), text, console=console, transient=True) as bars:

        def report(task: str, what: str, entries: int) -> None:
            with lock:
                known = lines.get(task)
                if known is None or known[1] != what:
                    if known is not None:
                        bars.remove_task(known[0])
                    lines[task] = (bars.add_task(f"{task} {what}", total=None), what)
                bars.advance(lines[task][0], entries)

        yield report


def show_digests(found: Digests, *, as_json: bool) -> None:
    """Totals, or what is missing for them; then tasks."""
    if as_json:
        typer.echo(orjson.dumps(found.to_json()))
        return
    console = Console()
    if not found.failed:
        console.print(
            table(
                {"store": name, "entries": one.entries, "digest": f"{one.total:032x}"}
                for name, one in found.totals.items()
            )
        )
    console.print(
        table(
            {
                "task": t.partition,
                "host": t.host,
                "epoch": t.marker.epoch,
                "batch": t.marker.batch_number,
                "stream time": _time(t.marker.stream_time_ms),
                **{name: str(t.stores[name]) for name in found.stores},
            }
            for t in found.tasks
            if t.error is None
        )
    )
    _fail(["no totals: " + t.error for t in found.failed if t.error is not None])


def show_comparison(found: Comparison, *, as_json: bool) -> None:
    """A row per task and store, then what failed and what differs."""
    if as_json:
        typer.echo(orjson.dumps(found.to_json()))
        return
    Console().print(
        table(
            {
                "task": t.live.partition,
                "host": t.live.host,
                "store": name,
                "live": str(t.live.stores[name]),
                "replayed": str(one),
                "result": "DIFFERENT" if name in t.different else "equal",
                "looks": t.looks,
            }
            for t in found.tasks
            if t.error is None
            for name, one in t.replayed.items()
        )
    )
    _fail(["not compared: " + t.error for t in found.failed if t.error is not None])
    _fail([_alarm(found, t) for t in found.alarms])


def _time(ms: int) -> str:
    return iso(ms) or "" if ms >= 0 else ""


def _alarm(found: Comparison, task: Compared) -> str:
    app, partition, at = found.topology.app, task.live.partition, task.live.marker
    source = "its changelog" if found.source == "changelog" else "its snapshot and the tail"
    step = f"'holdfast digest {app} --against changelog' tells whether the snapshot is wrong"
    if found.source == "changelog":
        step = (
            f"keep a copy of its directory, let 'holdfast audit {app}' tell which side is right, "
            f"and if it is the changelog, 'holdfast restore run {app} --task {partition} --from "
            "changelog'"
        )
    where = f"{at.epoch}/{at.batch_number}"
    seen = f"at two markers, the last one {where}" if task.newer else f"at {where}, seen twice"
    return (
        f"ALARM: {', '.join(task.different)} of task {app}/{partition} on {task.live.host} differs "
        f"from {source} {seen}: {step}"
    )


def _fail(lines: list[str]) -> None:
    console = Console(stderr=True, soft_wrap=True)
    for line in lines:
        console.print(line, style="red", markup=False, highlight=False)
