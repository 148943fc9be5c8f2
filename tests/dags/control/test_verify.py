"""The Holdfast connection, its test button, and the task that verifies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.providers_manager import ProvidersManager
from airflow.sdk import DAG, DagRunState
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
)

from holdfast_airflow.dags import verify_dag
from holdfast_airflow.errors import as_airflow
from holdfast_airflow.hooks.holdfast import HoldfastHook
from holdfast_airflow.operators.verify import VerifyChangelogsOperator
from state_lib.changelog.admin import ensure_topics, set_topic_configs
from state_lib.changelog.topics import TopicPlan, changelog_topic, plan_topics
from state_lib.config import Settings
from state_lib.driver.claims import write_claim
from state_lib.errors import LogLost, NotFound
from state_lib.kafka import Kafka
from state_lib.specs import StoreSpec, Topology
from state_lib.stack.ports import free_port
from tests.dags.conftest import Connect, scripted_dag
from tests.support import airflow_home
from tests.support.waiting import until

APP, CONN = "verified", "holdfast_default"
TOPOLOGY = Topology(APP, 2, (StoreSpec("kv"),), (), ("verified-source",))


@pytest.fixture
def settings_there(settings: Settings, hosts: None) -> Settings:  # noqa: ARG001 - they must run
    return settings


@pytest.fixture
def app(settings_there: Settings) -> Kafka:
    """An application as its driver leaves it, without tasks on hosts."""
    kafka = Kafka.of(settings_there)
    source = TopicPlan("verified-source", 1, {"retention.ms": "-1"}, owned=False)
    ensure_topics(kafka.admin(), [source, *plan_topics(TOPOLOGY)], 1, 1)
    write_claim(kafka, TOPOLOGY)
    return kafka


@pytest.fixture
def connection(connect: Connect, settings_there: Settings) -> Callable[..., None]:
    """Sets the connection, with the stack's own values unless a test gives others."""

    def set_(**given: Any) -> None:
        fields = {
            "host": settings_there.bootstrap_servers,
            "conn_type": "holdfast",
            "password": settings_there.read_token(),
            "extra": {"hosts": settings_there.hosts},
        } | given
        connect(fields.pop("host"), CONN, **fields)

    return set_


def test_the_type_of_connection_is_known() -> None:
    found = ProvidersManager().hooks["holdfast"]  # type: ignore[no-untyped-call]
    assert found is not None
    assert found.hook_class_name == "holdfast_airflow.hooks.holdfast.HoldfastHook"


def test_the_test_button(
    app: Kafka, connection: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    del app
    for name in ("BOOTSTRAP_SERVERS", "TOKEN", "HOSTS"):
        monkeypatch.delenv(f"HOLDFAST_{name}")
    connection()

    def answers() -> str | None:
        there, said = HoldfastHook().test_connection()
        return said if there else None

    said = until(answers, 60, "answered")
    assert "Kafka and 2 hosts answer" in said
    assert APP in said
    nobody = f"host-1=127.0.0.1:{free_port()}/{free_port()}"
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"password": "a-guess"}, "a bearer token is required"),
        ({"extra": {"hosts": nobody}}, "Kafka answers; host-1: "),
        ({"extra": {"hosts": "nonsense"}}, "hosts"),
        ({"host": f"127.0.0.1:{free_port()}"}, "list topics"),
    ]
    for given, why in wrong:
        connection(**given)
        there, said = HoldfastHook().test_connection()
        assert (there, why in said) == (False, True), said


def test_a_password_wins_over_the_file_of_the_worker(
    app: Kafka, connection: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    del app
    monkeypatch.setenv("HOLDFAST_TOKEN_FILE", "/nowhere")
    connection(password="a-guess")
    assert HoldfastHook().settings.read_token() == "a-guess"
    connection(extra={"token_file": "/nowhere-else"})
    assert HoldfastHook(env={"HOLDFAST_TOKEN": "x"}).settings.read_token() == "x"


def test_an_application_that_has_not_run_is_skipped_by_its_dag() -> None:
    (operator,) = verify_dag("someone-s").tasks
    assert isinstance(operator, VerifyChangelogsOperator)
    assert operator.skip_unknown
    with pytest.raises(AirflowSkipException), as_airflow(skip_unknown=True):
        raise NotFound("it has never run", app="someone-s")
    with pytest.raises(AirflowFailException), as_airflow():
        raise NotFound("it has never run", app="someone-s")
    with pytest.raises(AirflowException) as lost, as_airflow(skip_unknown=True):
        raise LogLost("its topology is gone", app="someone-s")
    assert not isinstance(lost.value, AirflowSkipException)


def attempt(app: str, **env: str) -> None:
    with DAG("alone", schedule=None):
        operator = VerifyChangelogsOperator(task_id="verify", app=app, env=env)
    operator.execute({"ti": None})  # type: ignore[typeddict-item]


def test_a_changelog_that_deletes_fails_the_task(
    app: Kafka,
    connection: Callable[..., None],
    bag: BundleDagBag,
    capsys: pytest.CaptureFixture[str],
) -> None:
    del bag  # its bundles are where `dag.test` looks
    connection()
    topic = changelog_topic(APP, "kv")
    set_topic_configs(app.admin(), topic, {"cleanup.policy": "delete", "retention.ms": "-1"})
    folder = airflow_home.SCRIPTED
    scripted = BundleDagBag(dag_folder=folder, bundle_path=folder, bundle_name="scripted")
    try:
        run = scripted.dags[f"{APP}_verify"].test()
    finally:
        set_topic_configs(app.admin(), topic, {"cleanup.policy": "compact"})
    assert run.state == DagRunState.FAILED
    said = capsys.readouterr().out
    assert f"fail cleanup-policy {topic}" in said
    assert "docs/runbook/cleanup-policy.md" in said
    ti = run.get_task_instance("verify")
    report = ti.xcom_pull("verify", key="report")
    found = {v["check"]: v["level"] for v in report["verdicts"] if v["level"] != "ok"}
    assert found["cleanup-policy"] == "fail"


def test_what_lies_in_changelogs_is_read(
    app: Kafka, connection: Callable[..., None], bag: BundleDagBag
) -> None:
    """As by default: no other task of the DAG sees whether they are compacted."""
    del bag  # as above
    connection()
    topic, producer = changelog_topic(APP, "kv"), app.producer()
    for n in range(20):
        producer.produce(topic, b"v", b"%d" % (n % 10), partition=0)
    assert producer.flush(30) == 0
    run = scripted_dag(f"{APP}_verify").test()
    report = run.get_task_instance("verify").xcom_pull("verify", key="report")
    (one,) = (v for v in report["verdicts"] if v["check"] == "compaction")
    assert (one["subject"], one["level"]) == (topic, "ok")
    assert one["seen"] == "2 of 2 partitions read, 20 records, 50% of them dead"


def test_what_a_person_must_correct_and_what_passes_by_itself(
    app: Kafka, connection: Callable[..., None]
) -> None:
    del app
    connection()
    with pytest.raises(AirflowFailException, match="there is no application"):
        attempt("nobody-s")
    with pytest.raises(AirflowException, match=r"describe|topic") as away:
        attempt(APP, HOLDFAST_BOOTSTRAP_SERVERS=f"127.0.0.1:{free_port()}")
    assert not isinstance(away.value, AirflowFailException)
