"""Each check has its page, and each page its check, its condition, or its rule of Prometheus."""

from __future__ import annotations

import re
from pathlib import Path

from state_lib.checks import CHECKS, SETTINGS, Report, judge
from state_lib.checks.condition import CANNOT_LOOK, CONDITIONS, OF_RUNS
from state_lib.checks.verdict import worst
from tests.support.facts import KV_LOG, all_of, altered, well
from tests.support.promql import rules

ROOT = Path(__file__).parents[3]
OF_CONDITIONS = {"connections", "driver-stalled", "store-lost"}
"""That no check finds: see `tests/unit/checks/test_conditions.py`."""
OF_RULES = {
    "host-restarts",
    "two-owners",
    "left-behind",
    "commits-slow",
    "records-dropped",
    "restore-stands",
    "compaction-pending",
}
"""That Prometheus alone tells of."""
RUNBOOK = ROOT / "docs" / "runbook"
INDEX = (RUNBOOK / "README.md").read_text()


def test_every_alarm_has_a_page() -> None:
    pages = {p.stem for p in RUNBOOK.glob("*.md")} - {"README"}
    assert pages == {*CHECKS, *OF_CONDITIONS, *OF_RUNS, *OF_RULES}
    for name in pages:
        assert f"({name}.md)" in INDEX
        page = (RUNBOOK / f"{name}.md").read_text()
        for part in ("## What it means", "## What was seen", "## What to do"):
            assert part in page
    for verdict in all_of(well()):
        assert (ROOT / verdict.document).exists()


def test_dags_that_steps_name_are_there_and_on_pages() -> None:
    code = "".join(file.read_text() for file in (ROOT / "state_lib" / "checks").glob("*.py"))
    named = set(re.findall(r"\{(?:facts\.)?app\}_(\w+)", code))
    assert {"repair", "restore", "restore_by_hand", "snapshots"} <= named
    dags = {file.stem for file in (ROOT / "plugins" / "holdfast_airflow" / "dags").glob("*.py")}
    assert named <= dags
    pages = "".join(page.read_text() for page in RUNBOOK.glob("*.md"))
    assert {name for name in named if f"`APP_{name}`" not in pages} == set()


def test_conditions_and_rules_lead_to_pages_that_name_them() -> None:
    found = dict(re.findall(r"^\| `([\w-]+)` \|(.*)$", INDEX, re.MULTILINE))
    told = {*CONDITIONS, CANNOT_LOOK, *OF_RUNS}
    assert set(found) == told | {rule["alert"] for rule in rules()}
    for name, pages in found.items():
        linked = re.findall(r"\(([\w-]+)\.md\)", pages)
        assert linked or name == "changelog-unsafe", "that one leads to the page of its check"
        for one in linked:
            assert f"`{name}`" in (RUNBOOK / f"{one}.md").read_text()


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
