"""Executors that die and tasks that run twice, on a standalone Spark cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.check import check
from tests.chaos.cluster import Cluster
from tests.chaos.conftest import Events
from tests.chaos.standalone import spark_cluster

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]
SPECULATE = (
    "--conf spark.speculation=true --conf spark.speculation.interval=200ms "
    "--conf spark.speculation.multiplier=1.1 --conf spark.speculation.quantile=0.25 "
    "--conf spark.speculation.minTaskRuntime=100ms --conf spark.executor.memory=700m pyspark-shell"
)


@pytest.fixture(scope="module")
def master(
    cluster: Cluster,  # noqa: ARG001 - its failpoints are in the environment of the executors
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    home: Path = tmp_path_factory.mktemp("spark") / "cluster"
    with spark_cluster(home) as url:
        yield url


def test_executors_killed_and_tasks_run_twice(
    cluster: Cluster, events: Events, app: str, master: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", SPECULATE)
    events.more(4000)
    driver = cluster.driver(app, events.topic, spark_master=master)
    driver.wait_event("batch", timeout_s=180)
    for armed in (
        "exchange.before_commit=kill-jvm",
        "exchange.after_commit=kill-jvm",
        "exchange.before_commit=kill-worker",
        "exchange.before_commit=sleep:6",
        "commit.after_rocksdb=sleep:6",
    ):
        cluster.arm(armed)
        events.more(3000)
        cluster.wait_fired(armed.partition("=")[0])
        check(cluster.settings, app, events.topic)
    assert driver.events("streaming") == 1, "Spark retries tasks; the driver goes on"
    assert driver.stop() == 0
