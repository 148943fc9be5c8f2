"""Other settings, other costs: from measures to bytes and seconds."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from state_lib.checks.what_if import Choice, Rates, StoreMeasured, kept_bytes, what_if
from state_lib.gathering.measures import seen_rates
from state_lib.specs import DAY_MS

HOUR = 3_600_000
STORE = StoreMeasured(
    store="kv",
    partitions=4,
    live=1_000_000,
    biggest=0.25,
    record_bytes=88.0,
    log_records=2_000_000,
    per_s=100.0,
    deletes=0.1,
    window_ms=0,
    retention_ms=-1,
    delete_retention_ms=7 * DAY_MS,
    segment_bytes=1 << 30,
    segment_ms=DAY_MS,
    dirty_ratio=0.5,
)
RATES = Rates(100_000, 50_000, 100e6, 0.5)


def test_restores_take_longer_the_rarer_snapshots_are() -> None:
    often, rarely = (what_if([STORE], RATES, Choice(ms)) for ms in (HOUR, DAY_MS))
    # 250,000 entries of 100 bytes fetched, 90,000 records of the largest task replayed
    assert often.from_snapshot_s == pytest.approx(0.5 + 0.25 + 1.8)
    assert rarely.from_snapshot_s == pytest.approx(0.5 + 0.25 + 43.2)
    assert often.from_changelog_s == rarely.from_changelog_s == pytest.approx(0.5 + 5.0)


def test_bytes_of_changelogs_are_live_dirt_the_last_segment_and_deletions() -> None:
    day = 100 * 100 * 86_400
    assert kept_bytes(STORE) == pytest.approx(2e8 + day + 0.1 * 7 * day)
    found = what_if([STORE], RATES, Choice(HOUR, delete_retention_ms=DAY_MS))
    assert found.changelog_bytes == pytest.approx(2e8 + day + 0.1 * day)


def test_bytes_of_snapshots_are_one_whole_and_what_changed() -> None:
    one, five = (what_if([STORE], RATES, Choice(HOUR, keep)) for keep in (1, 5))
    assert one.snapshot_bytes == pytest.approx(1e8)
    assert five.snapshot_bytes == pytest.approx(1e8 + 4 * 100 * 3600 * 100 * 2)
    most = what_if([STORE], RATES, Choice(30 * DAY_MS, 5))
    assert most.snapshot_bytes == pytest.approx(5e8)


def test_windows_are_kept_as_long_as_their_retention() -> None:
    windows = replace(STORE, window_ms=DAY_MS, retention_ms=2 * DAY_MS, per_s=0.0)
    assert kept_bytes(windows) == pytest.approx(2 * 2e8)
    assert kept_bytes(replace(windows, retention_ms=-1)) == inf
    found = what_if([replace(windows, retention_ms=-1)], RATES, Choice(HOUR, 1, None, DAY_MS))
    assert found.changelog_bytes == pytest.approx(2e8)


def test_rates_come_from_restores_that_ended() -> None:
    def event(phase: str, at: int, task: str = "a/0", **more: int) -> dict[str, object]:
        return {"phase": phase, "task": task, "store": "kv", "at": at, **more}

    told = [
        event("end", 1, records=50_000),  # its beginning is not known
        event("start", 1000),
        event("start", 1500, "a/1"),
        event("progress", 1600, "a/1", offset=7),
        event("end", 3000, records=50_000),
        event("end", 3500, "a/1", records=9_999),
        event("start", 9000, "a/2"),
    ]
    assert list(seen_rates(told)) == [25_000.0]
