"""What people see of a plan, and of a restore that goes on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from state_lib.changelog.log import LogRange
from state_lib.changelog.sample import Sample
from state_lib.cli._restore import plan_view
from state_lib.cli._restore_run import _Bars
from state_lib.restore.facts import LocalFacts
from state_lib.restore.plan import CHANGELOG, RestorePlan, make_plan
from tests.unit.restore.test_plan import (
    KV_LOG,
    MEM_LOG,
    checkpoint,
    facts,
    manifest,
    with_snapshots,
)

SEEN = {KV_LOG: Sample(record_bytes=1_000), MEM_LOG: Sample(record_bytes=10)}
LOGS = {KV_LOG: LogRange("id", 100, 1_500_100), MEM_LOG: LogRange("id2", 0, 50)}
TAKEN = manifest(1, checkpoint(offset=1_499_100))
"""A snapshot of 7 MB, and 1,000 records since."""


def lines(plan: RestorePlan) -> list[str]:
    """As a wide terminal shows it, with one space for many."""
    console = Console(width=200)
    with console.capture() as shown:
        console.print(plan_view(plan))
    return [" ".join(line.split()) for line in shown.get().splitlines()]


def row(plan: RestorePlan, source: str) -> list[str]:
    """Cells of a source: name, verdict, records, bytes, seconds, why; empty ones are left out."""
    (line,) = (one for one in lines(plan) if f"│ {source} │" in one)
    return [cell.strip() for cell in line.split("│") if cell.strip()]


@pytest.fixture
def plan() -> RestorePlan:
    """Local not valid, a snapshot chosen, the changelog not needed."""
    held = LocalFacts(None, "CURRENT is damaged", 5_000_000)
    return make_plan(
        replace(
            with_snapshots(TAKEN, samples=SEEN, logs=LOGS),
            local=held,
            free_bytes=20_000_000_000,
        )
    )


def test_every_source_says_what_it_costs_or_why_it_is_not_valid(plan: RestorePlan) -> None:
    assert plan.snapshot == TAKEN.id
    assert lines(plan)[0] == f"app/2: from {TAKEN.id} to commit 3/9"
    assert row(plan, "local") == ["local", "not valid", "CURRENT is damaged"]
    name, verdict, records, size, seconds, why = row(plan, TAKEN.id)
    assert (name, verdict, records, size, seconds) == (TAKEN.id, "chosen", "1,050", "8 MB", "0.3")
    assert why == "taken at commit 3/8, 1.0 h old; what this disk has already is not fetched"
    name, verdict, records, size, seconds, why = row(plan, "changelog")
    assert (verdict, records, size, seconds) == ("not needed", "1,500,050", "1.5 GB", "4.5")
    assert why.startswith("every changelog is replayed from its start; ")
    assert why.endswith(f"{TAKEN.id} is cheaper or asked for")


def test_what_is_read_what_it_needs_and_what_it_replaces(plan: RestorePlan) -> None:
    shown = lines(plan)
    assert "replays: kv [1499100, 1500100), mem [0, 50)" in shown
    assert "disk: about 9 MB needed, 20.0 GB free" in shown
    (replaced,) = (one for one in shown if one.startswith("replaced: "))
    assert replaced.startswith("replaced: the present directory (5.0 MB): set aside, and removed")


def test_a_directory_that_is_good_enough_and_one_that_is_replaced_by_a_wish() -> None:
    good = make_plan(facts(checkpoint()))
    assert row(good, "local")[1:3] == ["chosen", "150"]
    assert row(good, "changelog")[5].endswith("; local is cheaper or asked for")
    assert not any(one.startswith("replaced: ") for one in lines(good))
    wished = make_plan(facts(checkpoint()), CHANGELOG)
    assert row(wished, "local")[5].endswith("; changelog is cheaper or asked for")
    (replaced,) = (one for one in lines(wished) if one.startswith("replaced: "))
    assert "at commit 3/8" in replaced


def test_a_bar_shows_the_fetch_then_the_tail(plan: RestorePlan) -> None:
    bars = _Bars([plan])
    (bar,) = bars._progress.tasks

    def fetched(done: int) -> None:
        bars.event(plan, {"event": "fetch", "done": done, "total": 7_000_000})

    assert bar.total == 1_050, "offsets of the tail, until it is known what is fetched"
    fetched(3_500_000)
    assert (bar.percentage, bar.fields["about"]) == (50, "snapshot: 4 of 7 MB")
    fetched(7_000_000)
    assert (bar.completed, bar.total) == (0, 1_050), "what follows is the tail"
    bars.event(plan, {"event": "start", "store": "kv", "start": 1_499_100, "end": 1_500_100})
    bars.event(plan, {"event": "batch", "store": "kv", "records": 400, "offset": 1_499_625})
    assert (bar.percentage, bar.fields["about"]) == (50, "kv: 400 records")
    bars.event(plan, {"event": "done"})
    assert bar.percentage == 100
    assert str(bar.fields["about"]).startswith("400 records, ")


def test_a_bar_says_that_it_failed(plan: RestorePlan, capsys: pytest.CaptureFixture[str]) -> None:
    bars = _Bars([plan])
    bars.event(plan, {"event": "failed", "message": "the disk [of this host] is full"})
    assert bars._progress.tasks[0].fields["about"] == "failed"
    assert capsys.readouterr().err == "app/2: the disk [of this host] is full\n"
