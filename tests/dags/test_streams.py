"""The real DAGs, on Airflow's harness, against real Spark, hosts and a broker."""

from __future__ import annotations

import pytest
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.sdk import DagRunState

from state_lib.companions import companion
from state_lib.config import Settings
from state_lib.stack.logs import last_lines
from state_lib.stack.paths import Paths
from tests.dags.conftest import Connect
from tests.support.caught_up import stopped_when_caught_up


@pytest.mark.usefixtures("hosts")
@pytest.mark.parametrize(
    ("app", "records"), [("word_count", 200), pytest.param("flights", 3000, marks=pytest.mark.full)]
)
def test_a_stream_runs_until_it_is_stopped(
    bag: BundleDagBag, settings: Settings, connect: Connect, app: str, records: int
) -> None:
    connect("local[2,4]")
    companion(app, "load", settings.jobs_dir, "load").load(settings, limit=records)
    with stopped_when_caught_up(settings, app) as seen:
        run = bag.dags[f"{app}_stream"].test()
    log = "\n".join(last_lines(Paths(settings.home).log(app), 40))
    assert run.state == DagRunState.SUCCESS, log
    assert (seen[-1].done, seen[-1].lag) == (records, 0), log
    ti = run.get_task_instance("supervise")
    assert ti is not None
    assert "the test has seen enough" in ti.xcom_pull("supervise")["text"]
    links = [ti.xcom_pull("supervise", key=f"_link_{x}") for x in ("DriverLogLink", "SparkUiLink")]
    assert links == [f"/holdfast/streams/{app}_stream/supervise/{x}" for x in ("log", "spark")]
