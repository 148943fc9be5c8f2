"""Audits of a real stream, by real Spark: clean, wrong, refused."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.sdk import DagRunState
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from holdfast_airflow.jobs import Job
from holdfast_airflow.operators.audit import AuditOperator
from state_lib.changelog.claims import topology_of
from state_lib.cli._demo_loss import lose
from state_lib.client.flight import FlightHostClient
from state_lib.client.http import HostHttp
from state_lib.companions import companion
from state_lib.config import Settings
from state_lib.driver.claims import write_claim
from state_lib.errors import HoldfastError
from state_lib.kafka import Kafka
from state_lib.protocol.marker import CommitHeader, now_ms
from state_lib.protocol.placement import owner_of
from state_lib.stack import Stack
from state_lib.stack.logs import last_lines
from state_lib.stack.paths import Paths
from state_lib.stack.ports import free_port
from tests.dags.conftest import Connect
from tests.support import airflow_home
from tests.support.apps import App
from tests.support.caught_up import stopped_when_caught_up
from tests.support.committed import Committed
from tests.support.hosts import claim
from tests.support.tries import Tries
from tests.support.waiting import until

APP, RECORDS = "word_count", 200


@pytest.fixture
def streamed(
    bag: BundleDagBag, settings: Settings, hosts: None, connect: Connect
) -> Callable[[str], Any]:
    """The stream has read all there is; gives a DAG's run to its end."""
    del hosts  # they must run
    connect("local[2,4]")
    companion(APP, "load", settings.jobs_dir, "load").load(settings, limit=RECORDS)
    with stopped_when_caught_up(settings, APP):
        run = bag.dags[f"{APP}_stream"].test()
    assert run.state == DagRunState.SUCCESS, log(settings, APP)
    return lambda dag: bag.dags[dag].test()


def log(settings: Settings, name: str) -> str:
    return "\n".join(last_lines(Paths(settings.home).log(name), 40))


def spoil(settings: Settings, count: int) -> str:
    """A commit of no records that sets one count, in changelog and store; returns the word."""
    kafka = Kafka.of(settings)
    topology = topology_of(kafka, APP)
    epoch, word = write_claim(kafka, topology), b""
    for p in range(topology.partitions):
        address = owner_of(APP, p, settings.host_addresses)
        with closing(FlightHostClient(address, settings.read_token())) as client:
            marker = claim(client, App(kafka, topology, settings.home), epoch, p)
            _, found = client.scan(APP, p, "counts")
            words = [key for chunk in found for key in chunk.column(0).to_pylist()]
            with client.exchange(APP, p, epoch, 1) as exchange:
                if words and not word:
                    word = words[0]
                    value = pa.array([struct.pack(">q", count)], pa.binary())
                    times = pa.array([now_ms()], pa.int64())  # one batch has no stream time yet
                    exchange.put("counts", pa.array([word], pa.binary()), value, times)
                at = marker.positions
                exchange.commit(CommitHeader(epoch, 1, at, at, marker.stream_time_ms))
    return word.decode()


def lost(stack: Stack, app: str) -> None:
    """Task 0 loses its disk; returns once its host, which the stack starts again, misses it."""
    address = owner_of(app, 0, stack.settings.host_addresses)
    pid = stack.status()[address.id].pid
    assert pid is not None
    lose(stack.settings.home / "state" / address.id / app / "0", pid)

    def missed() -> bool:
        with closing(HostHttp(address, stack.settings.read_token(), 5.0)) as http:
            try:
                tasks = http.get(f"/v1/apps/{app}/stores", patient=False)["tasks"]
            except HoldfastError:
                return False
        return [t["state"] for t in tasks if t["partition"] == 0] == ["quarantined"]

    until(missed, 60)


def test_an_audit_is_clean_until_a_value_is_wrong(
    streamed: Callable[[str], Any],
    stack: Stack,
    settings: Settings,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = streamed(f"{APP}_audit")
    assert run.state == DagRunState.SUCCESS, log(settings, f"audit-{APP}")
    ti = run.get_task_instance("audit")
    found = ti.xcom_pull("audit")
    counts = found["counts"]
    assert found["clean"]
    entries = int(found["digests"]["counts"].partition("/")[2])
    assert counts.pop("compared") == 2 * entries > 0  # of the store and of its output
    assert set(counts.values()) == {0}
    assert (found["records"], found["differences"]) == (RECORDS, [])
    said = capsys.readouterr().out
    assert "audit of word_count: recompute" in said

    lost(stack, APP)
    run = streamed(f"{APP}_restore")
    assert run.state == DagRunState.SUCCESS, capsys.readouterr().out
    again = streamed(f"{APP}_audit").get_task_instance("audit").xcom_pull("audit")
    assert (again["clean"], again["digests"]) == (True, found["digests"])

    word = spoil(settings, 1_000_000)
    run = streamed(f"{APP}_audit")
    assert run.state == DagRunState.FAILED
    report = run.get_task_instance("audit").xcom_pull("audit", key="report")
    assert not report["clean"]
    assert report["counts"]["different"] == 1
    assert f"store counts: different {word!r}" in report["differences"][0]
    said = capsys.readouterr().out
    assert "value: expected" in said
    assert "is 1000000" in said
    assert "'holdfast digest word_count --against changelog'" in said


@pytest.mark.usefixtures("settings", "connect")
def test_an_application_that_has_not_run_is_skipped(bag: BundleDagBag) -> None:
    del bag
    folder = airflow_home.SCRIPTED
    scripted = BundleDagBag(dag_folder=folder, bundle_path=folder, bundle_name="scripted")
    run = scripted.dags["nobody_audit"].test()
    assert run.state == DagRunState.SUCCESS
    ti = run.get_task_instance("audit")
    assert ti is not None
    assert ti.state == "skipped"


def test_what_a_person_must_correct(
    settings: Settings, hosts: None, connect: Connect, tmp_path: Any
) -> None:
    del hosts
    Committed(settings, "unaudited", tmp_path)

    def refused(**operator: Any) -> str:
        task = Tries(lambda: AuditOperator(task_id="audit", app="unaudited", **operator))
        with pytest.raises(AirflowFailException) as error:
            task.execute()
        return str(error.value)

    assert "unaudited_audit.py does not exist" in refused()
    (tmp_path / "unaudited_audit.py").write_text("def recompute(spark, rows, batches): ...\n")
    jobs = {"HOLDFAST_JOBS_DIR": str(tmp_path)}
    assert "there is no connection 'nowhere'" in refused(env=jobs, spark_conn_id="nowhere")
    connect(f"spark://127.0.0.1:{free_port()}", "masterless")
    assert "no Spark master answers" in refused(env=jobs, spark_conn_id="masterless")
    connect("yarn", "clustered", extra={"deploy-mode": "cluster"})
    assert "deploy mode 'cluster'" in refused(env=jobs, spark_conn_id="clustered")
    wrong = jobs | {"HOLDFAST_TOKEN": "a-guess"}
    connect("local[1,2]")
    assert "does not accept" in refused(env=wrong)


def test_what_fails_in_the_job_is_told(
    settings: Settings, hosts: None, connect: Connect, tmp_path: Any
) -> None:
    """Nothing was committed: there is nothing to audit yet, and a retry may help."""
    del hosts
    connect("local[1,2]")
    Committed(settings, "uncommitted", tmp_path)
    (tmp_path / "uncommitted_audit.py").write_text("def recompute(spark, rows, batches): ...\n")
    env = {"HOLDFAST_JOBS_DIR": str(tmp_path)}
    task = Tries(lambda: AuditOperator(task_id="audit", app="uncommitted", env=env, wait_s=0.5))
    trigger = task.execute()
    event = task.waited(trigger)
    assert event["event"] == "ended", log(settings, "audit-uncommitted")
    assert Job.from_json(trigger.job).look().record is not None
    with pytest.raises(AirflowException, match="no batch was committed") as error:
        task.resume(event)
    assert not isinstance(error.value, AirflowFailException)
