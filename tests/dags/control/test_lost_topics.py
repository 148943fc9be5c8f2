"""A changelog that somebody deleted, written anew by its host once a person has approved it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.sdk import DAG, DagRunState
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from fastapi.testclient import TestClient

from holdfast_airflow.operators.lost_topics import (
    FindLostTopicsOperator,
    RepairLostTopicsOperator,
)
from state_lib.apps.losses import find_losses
from state_lib.changelog.admin import ensure_topics
from state_lib.changelog.topics import TopicPlan, plan_topics
from state_lib.kafka import Kafka
from state_lib.specs import Topology
from state_lib.stack import Stack
from state_lib.stack.ports import free_port
from tests.dags.conftest import Connect
from tests.support import airflow_home
from tests.support.apps import KV, App
from tests.support.host_process import TOKEN, Hosts
from tests.support.hosts import publish
from tests.support.lost import deleted
from tests.support.person import Person, airflows_api
from tests.support.tries import Tries

NAME, SOURCE = "rewritten", "rewritten-source"
PARTITIONS = 2


@pytest.fixture(scope="module")
def started(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    topology = Topology(NAME, PARTITIONS, (KV,), (), (SOURCE,))
    app = App(Kafka.of(stack.settings), topology, tmp_path_factory.mktemp(NAME))
    source = TopicPlan(SOURCE, 1, {"retention.ms": "-1"}, owned=False)
    ensure_topics(app.kafka.admin(), [source, *plan_topics(topology)], 1, 1)
    running = Hosts(app)
    try:
        running.start(publish(app))
        for task in range(PARTITIONS):
            running.commit(1, {b"a": b"1", b"b": b"2"}, task)
        yield running
    finally:
        running.stop()


@pytest.fixture
def hosts(started: Hosts, connect: Connect) -> Hosts:
    settings = started.settings
    extra = {
        "hosts": settings.hosts,
        "snapshots_url": settings.snapshots_url,
        "replication_factor": 1,
    }
    servers = settings.bootstrap_servers
    connect(servers, "holdfast_default", conn_type="holdfast", password=TOKEN, extra=extra)
    return started


@pytest.fixture
def dag(bag: BundleDagBag) -> DAG:
    del bag  # its bundles are where `dag.test` looks
    folder = airflow_home.SCRIPTED
    scripted = BundleDagBag(dag_folder=folder, bundle_path=folder, bundle_name="scripted")
    return scripted.dags[f"{NAME}_repair"]


@pytest.fixture(scope="module")
def web(database: None) -> Iterator[TestClient]:  # noqa: ARG001 - it must be there
    with airflows_api() as made:
        yield made


@pytest.fixture
def person(web: TestClient, dag: DAG) -> Iterator[Person]:
    made = Person(web, dag.dag_id)
    yield made
    made.done()


def states(run: Any) -> dict[str, str]:
    return {ti.task_id: str(ti.state) for ti in run.get_task_instances()}


def whole(hosts: Hosts) -> bool:
    found, failures = find_losses(hosts.settings, NAME)
    assert not failures
    return not any(loss.topics for loss in found)


def test_a_deleted_changelog_is_written_anew(
    hosts: Hosts, dag: DAG, person: Person, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = hosts.app.topic("kv")
    deleted(hosts.app, topic)
    person.will("Approve", task="approve_lost")
    run = dag.test()
    person.done()
    assert run.state == DagRunState.SUCCESS, capsys.readouterr().out
    assert states(run) == {
        "plan": "success",
        "approve": "skipped",
        "apply": "skipped",
        "find_lost": "success",
        "approve_lost": "success",
        "repair_lost": "success",
        "verify": "success",
    }
    (body,) = person.bodies
    assert f"| {NAME}/0 | `{topic}` | it does not exist |" in body
    done = run.get_task_instance("repair_lost").xcom_pull("repair_lost")
    assert done["tasks"] == [f"{NAME}/{p}" for p in range(PARTITIONS)]
    assert whole(hosts)
    again = dag.test()
    assert states(again) == {
        **dict.fromkeys(states(run), "skipped"),
        **dict.fromkeys(("plan", "find_lost"), "success"),
    }


def test_a_no_changes_nothing_and_a_retry_repairs_what_is_left(
    hosts: Hosts, dag: DAG, person: Person
) -> None:
    deleted(hosts.app, hosts.app.topic("kv"))
    person.will("Reject", task="approve_lost")
    run = dag.test()
    person.done()
    assert states(run)["repair_lost"] == states(run)["verify"] == "skipped"
    assert not whole(hosts)
    losses = run.get_task_instance("find_lost").xcom_pull("find_lost")
    given = {"app": NAME, "losses": losses}
    task = Tries(lambda: RepairLostTopicsOperator(task_id="repair", **given))
    trigger = task.execute()
    task.execute()  # the one that runs is adopted, or what it has done is taken
    assert task.kept["job-repair"]["job"] == trigger.job
    assert task.resume(task.waited(trigger))["failed"] == {}
    assert whole(hosts)
    other = Tries(lambda: RepairLostTopicsOperator(task_id="repair", **given))
    assert other.resume(other.waited(other.execute()))["failed"] == {}, "nothing is left to do"


def attempt(kind: type[Any], **given: Any) -> Any:
    with DAG("alone", schedule=None):
        operator = kind(task_id="alone", **{"app": NAME, **given})
    return operator.execute({"ti": None})


def test_bad_requests(hosts: Hosts) -> None:
    del hosts
    with pytest.raises(AirflowFailException, match="there is no application"):
        attempt(FindLostTopicsOperator, app="nobody-l")
    nobody = f"host-1=127.0.0.1:{free_port()}/{free_port()}"
    for env, why in (
        ({"HOLDFAST_HOSTS": nobody}, "does not tell what it lost"),
        ({"HOLDFAST_BOOTSTRAP_SERVERS": f"127.0.0.1:{free_port()}"}, "describe|topic"),
    ):
        with pytest.raises(AirflowException, match=why) as away:
            attempt(FindLostTopicsOperator, env=env)
        assert not isinstance(away.value, AirflowFailException)
    task = Tries(lambda: RepairLostTopicsOperator(task_id="repair", app=NAME, losses="a text"))
    with pytest.raises(AirflowFailException, match="none of rewritten"):
        task.execute()
