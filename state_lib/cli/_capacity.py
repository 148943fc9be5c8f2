"""What ``holdfast capacity`` prints."""

from __future__ import annotations

from pathlib import Path

import orjson
import typer
from rich.console import Console
from rich.text import Text

from state_lib.capacity.measure import capacity
from state_lib.capacity.measure import keep as kept
from state_lib.capacity.model import Capacity
from state_lib.capacity.page import ahead, page
from state_lib.cli._tables import table
from state_lib.config import Settings
from state_lib.errors import ConfigurationError
from state_lib.logs import configure_logging
from state_lib.words import size


def run(app: str, *, html: Path | None, keep: bool, quick: bool, as_json: bool) -> None:
    """Gather, assess, write, print.

    Raises:
        NotFound, Unavailable: as `state_lib.capacity.measure.capacity`.
        ConfigurationError: the page cannot be written there.
    """
    settings = Settings.load()
    configure_logging("ERROR")
    found = capacity(settings, app, read_logs=not quick)
    if html is not None:
        try:
            html.write_text(page(found))
        except OSError as error:
            raise ConfigurationError(
                f"cannot write {html}: {error.strerror}. Name another file (--html)", path=str(html)
            ) from error
    where = kept(settings, found) if keep else None
    if as_json:
        typer.echo(orjson.dumps(found.to_json()).decode())
        return
    show(Console(), found)
    if where is not None:
        Console().print(Text(f"kept: {where.page}"), soft_wrap=True)


def show(console: Console, found: Capacity) -> None:
    """A table of stores, one of tasks, one of hosts; then what is not known."""
    console.print(
        table(
            {
                "store": s.store,
                "records": f"{s.records:,}",
                "written": f"{s.written_per_s:,.1f}/s",
                "changelog": size(s.changelog_bytes),
                "memory": f"{size(s.memory_bytes)} of {size(s.bound)}" if s.bound else "",
            }
            for s in found.stores
        )
    )
    console.print(
        table(
            {
                "task": t.partition,
                "host": t.host,
                "records": f"{t.records:,}",
                "directory": size(t.bytes),
                "snapshot": size(t.snapshot_bytes) if t.snapshots else "none",
                "restore": "" if t.from_snapshot_s is None else f"{t.from_snapshot_s:,.1f} s",
                "from changelog": f"{t.from_changelog_s:,.1f} s",
            }
            for t in found.tasks
        )
    )
    console.print(
        table(
            {
                "host": h.host,
                "disk": size(h.disk_total),
                "free": size(h.disk_free),
                "full in": ahead(h.growth),
            }
            for h in found.hosts
            if h.away is None
        )
    )
    for note in found.notes:
        console.print(Text(note, style="yellow"), soft_wrap=True)
    console.print(Text(f"Restores are estimated from {found.rates_from}."), soft_wrap=True)
