"""Is the log cleaned? Judged from samples of it."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from state_lib.checks import CHECKS, Verdict
from state_lib.checks.compaction import PACKED, dirt
from state_lib.checks.facts import Facts, LogSample
from state_lib.gathering.samples import packing
from tests.support.facts import KV_LOG, WIN_LOG, altered, sample, the, well

RECORD = 112
"""Bytes that a record of a sample takes."""


def of(one: LogSample, log: str = KV_LOG, **more: object) -> Facts:
    """Facts with this sample, of a log whose segments are of 10,000 records' bytes."""
    facts = well(samples={log: (one, sample(1))}, **more)
    return altered(facts, log, segment_bytes=str(10_000 * RECORD // PACKED))


def long(records: int, first_repeat: int, **more: object) -> LogSample:
    found = sample(end=records, offsets=1000, first_repeat=first_repeat, repeats=900)
    return replace(found, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "level"),
    [
        (long(9_000, 10, live=10), "ok"),  # all of it may be in the last segment
        (long(15_000, 10), "warn"),
        (long(30_000, 10), "fail"),
        (long(300_000, -1, live=300_000), "ok"),
        (long(1_000_000, 500_000, live=500_000), "ok"),  # dirt up to half of the log is usual
        (long(1_000_000, 400_000, live=400_000), "warn"),
        (long(1_000_000, 100_000), "fail"),
        (sample(error="offset 7: bad magic"), "fail"),
        (sample(records=0, offsets=0, end=0), "ok"),
    ],
)
def test_what_lies_behind_the_first_repeat_was_never_cleaned(one: LogSample, level: str) -> None:
    assert the("compaction", of(one), KV_LOG).level == level


def test_the_verdict_says_what_was_seen() -> None:
    one = the("compaction", of(long(30_000, 10)), KV_LOG)
    assert "partitions 0; 0: 3 MB from offset 10 on were never cleaned" in one.seen
    assert "90% of what was read is dead" in one.seen
    assert "2 of 2 partitions read" in one.seen
    assert "uncleanable-partitions-count" in one.step


def test_a_cleaner_that_comes_on_is_late_and_not_stuck() -> None:
    earlier = {(KV_LOG, 0): (0, 990_000, 50_000)}
    moving = of(long(1_000_000, 100_000), earlier=earlier)
    one = the("compaction", moving, KV_LOG)
    assert one.level == "warn"
    assert "the cleaner comes on, from 50,000" in one.seen
    stuck = of(long(1_000_000, 100_000), earlier={(KV_LOG, 0): (0, 900_000, 100_000)})
    assert the("compaction", stuck, KV_LOG).level == "fail"


def test_a_log_that_grows_under_a_dead_cleaner_is_stuck() -> None:
    """Places that are read move with its end, and the first repeat with them."""
    for end, first in [(600_000, 60_000), (900_000, 90_000)]:
        facts = of(long(1_000_000, 100_000), earlier={(KV_LOG, 0): (0, end, first)})
        one = the("compaction", facts, KV_LOG)
        assert (one.level, "comes on" in one.seen) == ("fail", False)


def test_what_may_be_young_is_a_warning_at_most() -> None:
    facts = altered(of(long(30_000, 10)), KV_LOG, min_compaction_lag_ms="86400000")
    one = the("compaction", facts, KV_LOG)
    assert one.level == "warn"
    assert "what is younger than 1 d" in one.seen


def test_records_that_pack_well_fill_a_segment_later() -> None:
    """A segment of 10,000 records' bytes, at 3:1, takes 26,666 at 8:1."""
    assert the("compaction", of(long(26_000, 10, packed=8.0)), KV_LOG).level == "ok"
    assert the("compaction", of(long(90_000, 10, packed=8.0)), KV_LOG).level == "fail"
    rows = b"".join(b'{"id":%07d,"name":"somebody","amount":%d}' % (i, i * 7) for i in range(999))
    assert packing(rows) > PACKED
    assert packing(os.urandom(10_000)) == pytest.approx(1, abs=0.01)


def test_far_more_records_than_live_entries_are_a_warning_even_without_repeats() -> None:
    rare = long(1_000_000, -1, repeats=0, live=1000)
    one = the("compaction", of(rare), KV_LOG)
    assert one.level == "warn"
    assert "more than its live entries take" in one.seen
    deletes = replace(rare, deletes=1000)
    assert the("compaction", of(deletes), KV_LOG).level == "ok", "tombstones are kept for a week"
    windows = of(rare, WIN_LOG)
    assert the("compaction", windows, WIN_LOG).level == "ok", "expired windows stay for a while"
    unknown = replace(rare, live=-1)
    assert the("compaction", of(unknown), KV_LOG).level == "ok"


def test_holes_of_a_cleaned_log_are_no_records() -> None:
    config = well().topics[KV_LOG].config
    dense = dirt(sample(end=10_000, first_repeat=0), config, windowed=False)
    sparse = dirt(sample(end=10_000, offsets=10_000, first_repeat=0), config, windowed=False)
    assert sparse.uncleaned == pytest.approx(dense.uncleaned / 10)


def test_the_part_that_was_cleaned_is_not_taken_for_as_dense_as_the_other() -> None:
    """Seven places in a part of a hundred thousand holes, one in a tail where nothing was."""
    config = well().topics[KV_LOG].config
    seen = sample(
        end=200_000, offsets=8000, records=1700, first_repeat=100_000, before_offsets=7000,
        before_records=700,
    )  # fmt: skip
    found = dirt(seen, config, windowed=False)
    assert found.clean == pytest.approx(10_000 * RECORD)
    assert found.uncleaned == pytest.approx(100_000 * RECORD)


def test_nothing_is_said_of_logs_that_nobody_read() -> None:
    assert the_all(well(samples=None)) == []
    facts = altered(well(), KV_LOG, cleanup_policy="delete")
    assert KV_LOG not in {v.subject for v in the_all(facts)}, "another check's matter"


def the_all(facts: Facts) -> list[Verdict]:
    return list(CHECKS["compaction"](facts))
