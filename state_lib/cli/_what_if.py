"""What ``holdfast what-if`` measures and prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from math import isinf
from typing import Any

import orjson
import typer
from rich.console import Console
from rich.text import Text

from state_lib.checks.what_if import Choice, Outcome, Rates, StoreMeasured, what_if
from state_lib.cli._tables import table
from state_lib.config import Settings
from state_lib.durations import to_ms
from state_lib.gathering.application import gather
from state_lib.gathering.measures import restore_rates, stores_measured
from state_lib.kafka import Kafka
from state_lib.logs import configure_logging
from state_lib.words import size, span


def show(
    app: str,
    every: Sequence[str],
    *,
    keep: int,
    deletes: str | None,
    windows: str | None,
    as_json: bool,
) -> None:
    """One row for each interval between snapshots.

    Raises:
        ConfigurationError: a text that is no duration.
        NotFound, Unavailable: as `gather`.
    """
    kept = None if deletes is None else to_ms(deletes)
    aged = None if windows is None else to_ms(windows)
    choices = [Choice(to_ms(e), keep, kept, aged) for e in every]
    settings = Settings.load()
    configure_logging("ERROR")
    kafka = Kafka.of(settings)
    facts = gather(settings, kafka, app)
    stores, rates = stores_measured(kafka, facts), restore_rates(kafka, app)
    found = [(choice, what_if(stores, rates, choice)) for choice in choices]
    if as_json:
        typer.echo(orjson.dumps(_plain(app, stores, rates, found)).decode())
        return
    console = Console()
    console.print(table(_row(choice, outcome) for choice, outcome in found))
    console.print(Text(_about(stores, rates, keep)), soft_wrap=True)


def _row(choice: Choice, outcome: Outcome) -> dict[str, str]:
    logs = outcome.changelog_bytes
    return {
        "snapshots every": span(choice.snapshot_every_ms),
        "changelogs": "no bound" if isinf(logs) else size(logs),
        "snapshots": size(outcome.snapshot_bytes),
        "restore from snapshot": f"{outcome.from_snapshot_s:,.1f} s",
        "from changelog": f"{outcome.from_changelog_s:,.1f} s",
    }


def _about(stores: Sequence[StoreMeasured], rates: Rates, keep: int) -> str:
    paces = ", ".join(f"{s.store} {s.per_s:,.0f} records/s" for s in stores)
    seen = f"the last {rates.seen} restores" if rates.seen else "a benchmark: none was seen yet"
    rate = f"{rates.full_records_per_s:,.0f} records/s"
    return (
        f"Written now: {paces}. Restores at {rate}, from {seen}: "
        f"seconds are of the largest task, just before the next snapshot. {keep} snapshots are "
        "kept. Changelogs: one replica, before compression. Snapshots: live entries; up to twice "
        "as much, and as long to fetch, where many were overwritten since RocksDB merged them last."
    )


def _plain(
    app: str,
    stores: Sequence[StoreMeasured],
    rates: Rates,
    found: Sequence[tuple[Choice, Outcome]],
) -> dict[str, Any]:
    """Infinite bytes are null."""
    return {
        "app": app,
        "stores": [asdict(s) for s in stores],
        "rates": asdict(rates),
        "choices": [asdict(c) | {"outcome": asdict(o)} for c, o in found],
    }
