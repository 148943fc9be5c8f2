"""Topics set right by Airflow, once a person has approved it: against a real broker and hosts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.api_fastapi.app import create_app, get_auth_manager, purge_cached_app
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.models import DagRun
from airflow.models.hitl import HITLDetail
from airflow.models.taskinstance import TaskInstance
from airflow.providers.standard.exceptions import HITLTimeoutError
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, DagRunState, TaskInstanceState
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.utils.session import create_session
from fastapi.testclient import TestClient
from sqlalchemy import select, update

from holdfast_airflow.dags import repair_dag
from holdfast_airflow.operators.repair import RepairChangelogOperator
from state_lib.changelog.admin import ensure_topics, set_topic_configs, topic_configs
from state_lib.changelog.topics import TopicPlan, plan_topics
from state_lib.kafka import Kafka
from state_lib.specs import OutputSpec, Topology
from state_lib.stack import Stack
from state_lib.stack.ports import free_port
from tests.dags.conftest import Connect
from tests.support import airflow_home
from tests.support.apps import KV, App
from tests.support.host_process import TOKEN, Hosts
from tests.support.hosts import publish
from tests.support.waiting import until

NAME, SOURCE, OUT = "repaired", "repaired-source", "repaired-out"
DAG_ID = f"{NAME}_repair"
RIGHT = {"cleanup.policy": "compact", "segment.ms": "604800000"}
WRONG = {"cleanup.policy": "delete", "segment.ms": "99999999999"}
LOST = ("find_lost", "approve_lost", "repair_lost")
ALWAYS = {"retention.ms": "-1"}
"""Of what else was shortened nothing is left by the time that it is put right."""


@pytest.fixture(scope="module")
def started(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """A host process and an application of two tasks, with something in each."""
    topology = Topology(NAME, 2, (KV,), (OutputSpec(OUT, "kv"),), (SOURCE,))
    app = App(Kafka.of(stack.settings), topology, tmp_path_factory.mktemp(NAME))
    source = TopicPlan(SOURCE, 1, {"retention.ms": "-1"}, owned=False)
    ensure_topics(app.kafka.admin(), [source, *plan_topics(topology)], 1, 1)
    running = Hosts(app)
    try:
        running.start(publish(app))
        for task in range(2):
            running.commit(1, {b"a": b"1"}, task)
        yield running
    finally:
        running.stop()


@pytest.fixture
def app(started: Hosts, connect: Connect) -> Iterator[App]:
    """Airflow knows its hosts by the connection alone."""
    settings = started.settings
    extra = {
        "hosts": settings.hosts,
        "snapshots_url": settings.snapshots_url,
        "replication_factor": 1,
    }
    servers, conn = settings.bootstrap_servers, "holdfast_default"
    connect(servers, conn, conn_type="holdfast", password=TOKEN, extra=extra)
    found = started.app
    set_topic_configs(found.kafka.admin(), found.topic("kv"), {**RIGHT, **ALWAYS})
    yield found
    set_topic_configs(found.kafka.admin(), found.topic("kv"), {**RIGHT, **ALWAYS})


@pytest.fixture
def dag(bag: BundleDagBag) -> DAG:
    del bag  # its bundles are where `dag.test` looks
    folder = airflow_home.SCRIPTED
    scripted = BundleDagBag(dag_folder=folder, bundle_path=folder, bundle_name="scripted")
    return scripted.dags[DAG_ID]


@pytest.fixture(scope="module")
def client(bag: BundleDagBag) -> Iterator[TestClient]:
    del bag
    purge_cached_app()
    with TestClient(create_app("core")) as made:
        yield made
    purge_cached_app()


@contextmanager
def answered(
    client: TestClient, option: str, meanwhile: Callable[[], None] = lambda: None
) -> Iterator[list[str]]:
    """Somebody who is asked, reads, and answers in Airflow's UI; what they were shown."""
    shown: list[str] = []

    def asked() -> bool:
        """Also `dag.test` knows by now: a look of its before would put the task back to waiting."""
        with create_session() as session:
            waiting = select(HITLDetail).join(HITLDetail.task_instance)
            waiting = waiting.where(
                HITLDetail.responded_at.is_(None), TaskInstance.dag_id == DAG_ID
            )
            found = session.scalars(waiting).one_or_none()
            if found is None:
                return False
            shown[:] = [found.body or "", found.task_instance.run_id]
            run = session.scalars(select(DagRun).where(DagRun.run_id == shown[1])).one()
            looked = run.last_scheduling_decision
            return looked is not None and looked > found.created_at

    def answers() -> None:
        try:
            until(asked, 60, "asked")
            meanwhile()
            user = SimpleAuthManagerUser(username="boss", role="admin")
            task = f"dagRuns/{shown[1]}/taskInstances/approve/-1"
            said = client.patch(
                f"/api/v2/dags/{DAG_ID}/{task}/hitlDetails",
                json={"chosen_options": [option]},
                headers={"Authorization": f"Bearer {get_auth_manager().generate_jwt(user)}"},
            )
            assert said.status_code == 200, said.text
        except BaseException:
            with create_session() as session:  # `dag.test` would wait for ever
                ours = update(DagRun).where(DagRun.dag_id == DAG_ID)
                session.execute(ours.values(state=DagRunState.FAILED))
            raise

    person = threading.Thread(target=answers)
    person.start()
    try:
        yield shown
    finally:
        person.join()


def states(run: DagRun) -> dict[str, str]:
    """Of what is about settings."""
    return {
        ti.task_id: str(ti.state) for ti in run.get_task_instances() if "lost" not in ti.task_id
    }


def all_(state: TaskInstanceState, *but: str) -> dict[str, str]:
    skipped = dict.fromkeys(("plan", "approve", "apply", "verify"), str(state.value))
    return skipped | dict.fromkeys(but, str(TaskInstanceState.SUCCESS.value))


def seen(app: App, topic: str) -> dict[str, str]:
    return topic_configs(app.kafka.admin(), [topic])[topic]


def test_what_a_person_approves_is_set_and_verified(
    app: App, dag: DAG, client: TestClient, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = app.topic("kv")
    set_topic_configs(app.kafka.admin(), topic, WRONG)
    set_topic_configs(app.kafka.admin(), OUT, {"cleanup.policy": "compact"})
    with answered(client, "Approve") as shown:
        run = dag.test()
    assert states(run) == all_(TaskInstanceState.SUCCESS)
    assert seen(app, topic).items() >= {"cleanup.policy": "compact"}.items()
    assert seen(app, topic)["segment.ms"] != WRONG["segment.ms"]
    assert seen(app, OUT)["cleanup.policy"] == "compact", "no topic of its own"
    assert f"| `{topic}` | `cleanup.policy` | `delete` | `compact` |" in shown[0]
    assert f"{topic}: cleanup.policy is different: is delete, is to be compact" in (
        capsys.readouterr().out
    )
    of_lost = {t.task_id: str(t.state) for t in run.get_task_instances() if t.task_id in LOST}
    assert of_lost == dict(zip(LOST, ("success", "skipped", "skipped"), strict=True))
    ti = run.get_task_instance("apply")
    assert ti is not None
    plan, done = (ti.xcom_pull(task) for task in ("plan", "apply"))
    assert plan == done
    assert {one["key"] for one in plan["changes"]} == set(WRONG)


def test_nothing_to_repair_skips_the_rest(app: App, dag: DAG) -> None:
    del app
    run = dag.test()
    assert run.state == DagRunState.SUCCESS
    assert states(run) == all_(TaskInstanceState.SKIPPED, "plan")
    ti = run.get_task_instance("plan")
    assert ti is not None
    assert ti.xcom_pull("plan") == {"app": NAME, "changes": []}


def test_a_rejection_skips_the_rest(app: App, dag: DAG, client: TestClient) -> None:
    topic = app.topic("kv")
    set_topic_configs(app.kafka.admin(), topic, WRONG)
    with answered(client, "Reject"):
        run = dag.test()
    assert states(run) == all_(TaskInstanceState.SKIPPED, "plan", "approve")
    assert seen(app, topic)["cleanup.policy"] == "delete"


def test_a_plan_that_went_stale_is_refused(
    app: App, dag: DAG, client: TestClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """Between approval and repair somebody sets something else: nobody has seen that."""
    admin, topic = app.kafka.admin(), app.topic("kv")
    set_topic_configs(admin, topic, {"cleanup.policy": "delete"})
    with answered(client, "Approve", lambda: set_topic_configs(admin, topic, WRONG)):
        run = dag.test()
    assert run.state == DagRunState.FAILED
    assert states(run)["apply"] == "failed"
    assert states(run)["verify"] == "upstream_failed"
    said = capsys.readouterr().out
    assert f"AirflowFailException: the topics of '{NAME}' are not set any more as they were" in said
    assert f"segment.ms of {topic} is {WRONG['segment.ms']}" in said
    assert seen(app, topic).items() >= WRONG.items(), "nothing was altered"


def test_an_application_that_has_not_run_is_skipped(app: App, bag: BundleDagBag) -> None:
    del app, bag
    folder = airflow_home.SCRIPTED
    scripted = BundleDagBag(dag_folder=folder, bundle_path=folder, bundle_name="scripted")
    run = scripted.dags["unknown_repair"].test()
    assert run.state == DagRunState.SUCCESS
    assert states(run) == all_(TaskInstanceState.SKIPPED)


def operator(**given: Any) -> RepairChangelogOperator:
    with DAG("alone", schedule=None):
        return RepairChangelogOperator(task_id="repair", **{"app": NAME, **given})


def test_without_a_plan_all_that_differs_is_set(app: App) -> None:
    topic = app.topic("kv")
    set_topic_configs(app.kafka.admin(), topic, WRONG)
    done = operator().execute({})
    assert {one["key"] for one in done["changes"]} == set(WRONG)
    assert operator().execute({})["changes"] == []


def test_a_repair_that_was_interrupted_goes_on(app: App) -> None:
    """What was approved and is set already is no news."""
    topic = app.topic("kv")
    set_topic_configs(app.kafka.admin(), topic, WRONG)
    plan = operator(only_plan=True).execute({})
    set_topic_configs(app.kafka.admin(), topic, {"cleanup.policy": "compact"})
    done = operator(approved=plan).execute({})
    assert [one["key"] for one in done["changes"]] == ["segment.ms"]


def test_what_a_person_must_correct_and_what_passes_by_itself(app: App) -> None:
    del app
    with pytest.raises(AirflowFailException, match="there is no application"):
        operator(app="unknown").execute({})
    for wrong in ("a text", {"app": "another", "changes": []}):
        with pytest.raises(AirflowFailException, match="no plan for repaired"):
            operator(approved=wrong).execute({})
    nobody = {"HOLDFAST_BOOTSTRAP_SERVERS": f"127.0.0.1:{free_port()}"}
    with pytest.raises(AirflowException) as away:
        operator(env=nobody).execute({})
    assert not isinstance(away.value, AirflowFailException)


def test_nothing_is_approved_without_a_person(dag: DAG) -> None:
    approve = dag.get_task("approve")
    assert isinstance(approve, ApprovalOperator)
    with pytest.raises(AirflowFailException, match="this is try 2 of the task"):
        approve.execute({"ti": SimpleNamespace(try_number=2)})  # type: ignore[typeddict-item]
    assert (approve.defaults, approve.response_timeout) == (None, None)
    assert {"plan", "approve"} == dag.get_task("apply").upstream_task_ids
    assert {"find_lost", "approve_lost"} == dag.get_task("repair_lost").upstream_task_ids
    with pytest.raises(ValueError, match="without a person"):
        repair_dag("hasty", approval={"defaults": "Approve"})
    given = {"response_timeout": timedelta(hours=1)}
    soon = repair_dag("soon", approval=given).get_task("approve")
    assert isinstance(soon, ApprovalOperator)
    late = {"error": "the time is over", "error_type": "timeout"}
    with pytest.raises(HITLTimeoutError):
        soon.execute_complete({}, late)
