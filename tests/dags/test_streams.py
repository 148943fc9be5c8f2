"""The real DAGs, on Airflow's harness, against real Spark, hosts and a broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.sdk import DagRunState

from state_lib.companions import companion
from state_lib.config import Settings
from state_lib.drivers.control import ask_to_stop
from state_lib.drivers.look import Looker
from state_lib.drivers.sight import Sight
from state_lib.kafka import Kafka
from state_lib.stack.logs import last_lines
from state_lib.stack.paths import Paths
from tests.dags.conftest import Connect
from tests.support.waiting import deadline_in

PATIENCE_S = 200.0


@contextmanager
def stopped_when_caught_up(settings: Settings, app: str) -> Iterator[list[Sight]]:
    """Beside the test: waits until the stream has caught up, then asks its driver to stop."""
    seen: list[Sight] = []

    def follow() -> None:
        looker = Looker(settings, app)
        deadline = deadline_in(PATIENCE_S)
        while time.monotonic() < deadline:
            seen.append(looker.look())
            if seen[-1].n > 0 and seen[-1].total > 0 and seen[-1].lag == 0:
                break
            time.sleep(0.5)
        looker.close()
        ask_to_stop(Kafka.of(settings), app, why="the test has seen enough")

    thread = threading.Thread(target=follow)
    thread.start()
    yield seen
    thread.join()


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
