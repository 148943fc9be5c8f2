"""Loading by Airflow: the real DAG against a real broker."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.sdk import DAG, DagRunState
from airflow.sdk.exceptions import AirflowFailException

from holdfast_airflow.operators.load import LoadOperator, progress
from state_lib.config import Settings
from state_lib.kafka import Kafka, describe, ends


def records(settings: Settings, topic: str) -> int:
    admin = Kafka.of(settings).admin()
    partitions = describe(admin, [topic])[topic].partitions
    return sum(ends(admin, [(topic, p) for p in range(partitions)]).values())


def test_flights_are_loaded_once(bag: BundleDagBag, settings: Settings) -> None:
    dag = bag.dags["flights_load"]
    run = dag.test(run_conf={"limit": 1500})
    assert run.state == DagRunState.SUCCESS
    assert records(settings, "flights") == 1500
    run = dag.test(run_conf={"limit": 2000, "rate": 100000})
    assert run.state == DagRunState.SUCCESS
    assert records(settings, "flights") == 2000
    ti = run.get_task_instance("load")
    assert ti is not None
    assert ti.xcom_pull("load") == {"found": 1500, "added": 500}


def attempt(operator: LoadOperator, **changes: str) -> None:
    operator.env = changes
    operator.execute({})


@pytest.fixture
def operator() -> LoadOperator:
    with DAG("alone", schedule=None):
        return LoadOperator(task_id="load", name="flights")


@pytest.mark.usefixtures("settings")
def test_a_loader_that_does_not_exist_needs_a_person(operator: LoadOperator) -> None:
    operator.name = "nothing"
    with pytest.raises(AirflowFailException, match=r"nothing_load\.py does not exist.*flights"):
        attempt(operator)


def test_a_setting_that_does_not_exist_needs_a_person(operator: LoadOperator) -> None:
    with pytest.raises(AirflowFailException, match="nonsense"):
        attempt(operator, HOLDFAST_NONSENSE="1")


def test_a_limit_that_is_no_number_needs_a_person(operator: LoadOperator) -> None:
    operator.limit = "many"
    with pytest.raises(AirflowFailException, match=r"limit .*flights.* is .many.: give a number"):
        attempt(operator)


def test_progress_is_a_line_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    log: Any = logging.getLogger("test_progress")
    with caplog.at_level(logging.INFO):
        report = progress(log, "flights", every_s=1e9)
        for done in range(0, 10_001, 1000):
            report(done, 10_000)
    assert len(caplog.messages) == 2
    assert caplog.messages[-1].startswith("flights: 10,000 of 10,000 (100 %)")
