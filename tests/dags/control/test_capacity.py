"""A capacity report of real hosts, kept by a DAG, and shown by the api-server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.sdk import DagRunState

from state_lib.config import Settings
from state_lib.reports.folder import Reports
from tests.support import airflow_home
from tests.support.command import holdfast
from tests.support.committed import PARTITIONS, Committed

APP = "measured"


@pytest.fixture
def run(bag: BundleDagBag, api: None, settings: Settings) -> Callable[[str], Any]:
    """A scripted DAG to its end."""
    del bag, api, settings  # its bundles are where `dag.test` looks
    folder = airflow_home.SCRIPTED
    scripted = BundleDagBag(dag_folder=folder, bundle_path=folder, bundle_name="scripted")
    return lambda app: scripted.dags[f"{app}_capacity"].test()


@pytest.mark.usefixtures("hosts")
def test_a_report_is_kept_with_its_page_and_the_last_ones_stay(
    run: Callable[[str], Any],
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = Committed(settings, APP, tmp_path)
    for p in range(PARTITIONS):
        app.commit(p, a="1", b="2")
    app.snapshot()
    app.commit(0, c="3")
    monkeypatch.setenv("HOLDFAST_REPORTS_KEPT", "2")
    for _ in range(3):
        done = run(APP)
        assert done.state == DagRunState.SUCCESS
    ti = done.get_task_instance("report")
    assert ti is not None
    found = ti.xcom_pull("report")
    assert found["totals"]["stored_bytes"] > 0
    assert set(found["full_days"]) == {"host-1", "host-2"}
    html, figures = (
        Path(found[name].removeprefix("file://")).read_bytes() for name in ("page", "figures")
    )
    said = orjson.loads(figures)
    assert said["totals"] == found["totals"]
    assert [t["snapshots"] for t in said["tasks"]] == [1] * PARTITIONS
    assert [t["partition"] for t in said["tasks"]] == list(range(PARTITIONS))
    assert sum(c["changelog_records"] for c in said["cells"]) == 2 * PARTITIONS + 1
    assert said["tasks"][1]["snapshot_age_ms"] == 0, "it stands at the newest commit"
    assert said["tasks"][0]["snapshot_age_ms"] > 0
    assert said["stores"][0]["growth"]["per_day"] is not None, "from the reports before"
    assert all(h["disk_total"] > h["disk_free"] > 0 for h in said["hosts"])
    assert b"<svg" in html
    assert f"{APP}/1".encode() in html
    assert len(Reports.of(settings, APP, "capacity").ids()) == 2
    link = ti.xcom_pull("report", key="_link_CapacityReportLink")
    assert link == f"/holdfast/streams/{APP}_capacity/report/capacity"


def test_an_application_that_has_not_run_is_skipped(run: Callable[[str], Any]) -> None:
    done = run("nobody")
    assert done.state == DagRunState.SUCCESS
    assert done.get_task_instance("report").state == "skipped"


@pytest.mark.usefixtures("hosts")
def test_the_command_does_the_same(settings: Settings, tmp_path: Path) -> None:
    Committed(settings, "measured-by-hand", tmp_path).commit(0, a="1")
    file = tmp_path / "page.html"
    said = orjson.loads(holdfast("capacity", "measured-by-hand", "--json", "--html", str(file)))
    assert sum(c["changelog_records"] for c in said["cells"]) == 1
    assert "Capacity of measured-by-hand" in file.read_text()
    assert Reports.of(settings, "measured-by-hand", "capacity").ids() == []
    shown = holdfast("capacity", "measured-by-hand", "--keep", "--quick")
    assert "kept: file://" in shown
    assert "host-1" in shown
    assert len(Reports.of(settings, "measured-by-hand", "capacity").ids()) == 1
    nowhere = str(tmp_path / "no" / "page.html")
    words = ("capacity", "measured-by-hand", "--quick")
    assert "(--html)" in holdfast(*words, "--html", nowhere, code=1)
