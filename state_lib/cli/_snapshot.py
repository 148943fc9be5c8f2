"""What ``holdfast snapshot`` prints."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import orjson
import typer
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from state_lib.apps.pruning import Pruning
from state_lib.config import Settings
from state_lib.logs import configure_logging
from state_lib.snapshots.listing import stored_tasks
from state_lib.snapshots.manifest import Manifest
from state_lib.snapshots.savepoints import Savepoint
from state_lib.times import iso

Json = dict[str, Any]
Watch = Callable[[Json], None]


def settings() -> Settings:
    """As configured; a retry is not worth a line, the error tells in the end."""
    configure_logging("ERROR")
    return Settings.load()


def tasks(url: str, app: str, task: int | None) -> list[int]:
    """The task asked for, or all that storage knows."""
    return stored_tasks(url, app) if task is None else [task]


@contextlib.contextmanager
def bars(*, as_json: bool) -> Iterator[Watch]:
    """A bar for each task, on standard error; none beside JSON."""
    if as_json:
        yield lambda _: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        rows: dict[str, TaskID] = {}

        def watch(job: Json) -> None:
            task = job["task"]
            if task not in rows:
                rows[task] = progress.add_task(task, total=None)
            progress.update(
                rows[task],
                description=f"{task} {job['phase'] if job['state'] == 'running' else job['state']}",
                completed=job["done"],
                total=job["total"] or None,
            )

        yield watch


def jobs(found: Sequence[Json], *, as_json: bool) -> None:
    """How each task's snapshot ended."""
    if as_json:
        _json({"snapshots": list(found)})
        return
    table = _table("task", "snapshot", "bytes", "uploaded", "seconds")
    for job in found:
        if job["error"]:
            table.add_row(job["task"], Text("none", style="red"))
        else:
            size, uploaded = decimal(job["size_bytes"]), decimal(job["uploaded_bytes"])
            table.add_row(job["task"], job["snapshot"], size, uploaded, f"{job['seconds']}")
    Console().print(table)
    errors = Console(stderr=True, soft_wrap=True)
    for job in [job for job in found if job["error"]]:
        text = f"Error: {job['task']} on {job['host']}: {job['error']['message']}"
        errors.print(text, style="red", markup=False, highlight=False)


def listing(
    url: str,
    manifests: Sequence[Manifest],
    savepoints: Sequence[Savepoint],
    *,
    as_json: bool,
    one: bool = False,
) -> None:
    """Snapshots and savepoints; ``one``: just the savepoint that was made."""
    if as_json:
        saved = [asdict(s) for s in savepoints]
        _json(
            saved[0] if one else {"snapshots": [_plain(m) for m in manifests], "savepoints": saved}
        )
        return
    console = Console()
    if not manifests and not savepoints:
        console.print(f"no snapshots in {url}", highlight=False)
    if manifests:
        table = _table("task", "snapshot", "commit", "stream time", "bytes", "of a savepoint")
        for m in manifests:
            table.add_row(
                m.task,
                m.id,
                f"{m.marker.epoch}/{m.marker.batch_number}",
                iso(m.marker.stream_time_ms) if m.marker.stream_time_ms >= 0 else "",
                decimal(m.size_bytes),
                "yes" if m.savepoint else "",
            )
        console.print(table)
    if savepoints:
        table = _table("savepoint", "commit", "stream time", "tasks")
        for s in savepoints:
            stream_time = iso(s.stream_time_ms) if s.stream_time_ms >= 0 else ""
            table.add_row(s.id, f"{s.epoch}/{s.batch_number}", stream_time, str(len(s.snapshots)))
        console.print(table)


def verified(found: Sequence[Json], *, as_json: bool) -> None:
    """Each verdict."""
    if as_json:
        _json({"snapshots": list(found)})
        return
    table = _table("task", "snapshot", "verdict")
    for one in found:
        bad = "; ".join(one["problems"][:3])
        verdict = Text(bad, style="red") if bad else Text("whole", style="green")
        table.add_row(one["task"], one["snapshot"], verdict)
    Console().print(table if found else "no snapshots")


def pruned(done: Pruning, *, dry: bool, as_json: bool) -> None:
    """What went, or would go."""
    if as_json:
        _json({"dry_run": dry, **asdict(done)})
        return
    table = _table("task", "kept", "pruned", "files deleted", "bytes freed")
    table.title = "a dry run" if dry else None
    for one in done.tasks:
        freed = one.not_collected or decimal(one.freed_bytes)
        counts = (str(len(one.kept)), str(len(one.pruned)), str(one.deleted_files))
        table.add_row(one.task, *counts, freed)
    console = Console()
    console.print(table)
    if done.savepoints:
        console.print(f"savepoints pruned: {', '.join(done.savepoints)}", highlight=False)


def _table(*columns: str) -> Table:
    """Ids are to be copied: they are never cut or folded."""
    table = Table()
    for column in columns:
        whole = column in ("snapshot", "savepoint")
        table.add_column(column, no_wrap=whole, min_width=27 if whole else None, overflow="fold")
    return table


def _plain(manifest: Manifest) -> Json:
    return {
        "id": manifest.id,
        "task": manifest.task,
        "created_at": manifest.created_at,
        "host": manifest.host,
        "savepoint": manifest.savepoint,
        "epoch": manifest.marker.epoch,
        "batch_number": manifest.marker.batch_number,
        "stream_time_ms": manifest.marker.stream_time_ms,
        "positions": manifest.marker.positions.to_json(),
        "digests": dict(manifest.digests),
        "files": len(manifest.files),
        "size_bytes": manifest.size_bytes,
    }


def _json(data: Any) -> None:
    typer.echo(orjson.dumps(data, option=orjson.OPT_INDENT_2).decode())
