"""Each check has its page, and each page its check, or its condition."""

from __future__ import annotations

from pathlib import Path

from state_lib.checks import CHECKS, SETTINGS, Report, judge
from state_lib.checks.verdict import worst
from tests.support.facts import KV_LOG, all_of, altered, well

ROOT = Path(__file__).parents[3]
OF_CONDITIONS = {"connections", "driver-stalled", "store-lost"}
"""That no check finds: see `tests/unit/checks/test_conditions.py`."""


def test_every_alarm_has_a_page() -> None:
    pages = {p.stem for p in (ROOT / "docs" / "runbook").glob("*.md")} - {"README"}
    assert pages == {*CHECKS, *OF_CONDITIONS}
    index = (ROOT / "docs" / "runbook" / "README.md").read_text()
    for name in pages:
        assert f"({name}.md)" in index
        page = (ROOT / "docs" / "runbook" / f"{name}.md").read_text()
        for part in ("## What it means", "## What was seen", "## What to do"):
            assert part in page
    for verdict in all_of(well()):
        assert (ROOT / verdict.document).exists()


def test_a_report_survives_json_and_counts_the_worst() -> None:
    wrong = altered(
        altered(well(), KV_LOG, cleanup_policy="delete"), "app-progress", segment_ms="1"
    )
    report = judge(altered(wrong, KV_LOG, min_insync_replicas="1"))
    assert Report.from_json(report.to_json()) == report
    assert (report.level, report.exit_code) == ("fail", 2)
    assert [v.level for v in report.alarms] == sorted([v.level for v in report.alarms])
    assert [(c.key, c.wanted) for c in report.changes] == [
        ("cleanup.policy", "compact"),
        ("min.insync.replicas", "2"),
    ]
    assert worst([]) == "ok"
    assert judge(wrong, SETTINGS).changes == judge(wrong).changes
