"""A DAG that fails is told once, and once that it succeeds again; by all of Airflow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.sdk import DagRunState

from state_lib.changelog.admin import ensure_topics, set_topic_configs
from state_lib.changelog.topics import TopicPlan, plan_topics
from state_lib.kafka import Kafka
from state_lib.specs import Topology
from state_lib.stack import Stack
from tests.dags.conftest import Connect
from tests.support import airflow_home
from tests.support.apps import KV, App
from tests.support.host_process import TOKEN, Hosts
from tests.support.hosts import publish

NAME, SOURCE = "telling", "telling-source"


@pytest.fixture(scope="module")
def started(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    topology = Topology(NAME, 1, (KV,), (), (SOURCE,))
    app = App(Kafka.of(stack.settings), topology, tmp_path_factory.mktemp(NAME))
    source = TopicPlan(SOURCE, 1, {"retention.ms": "-1"}, owned=False)
    ensure_topics(app.kafka.admin(), [source, *plan_topics(topology)], 1, 1)
    running = Hosts(app)
    try:
        running.start(publish(app))
        running.commit(1, {b"a": b"1"})
        yield running
    finally:
        running.stop()


@pytest.fixture
def verified(
    started: Hosts,
    connect: Connect,
    bag: BundleDagBag,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[[str], Any]]:
    """A run while the changelog's policy is so."""
    del bag  # its bundles are where `dag.test` looks
    settings = started.settings
    extra = {
        "hosts": settings.hosts,
        "snapshots_url": settings.snapshots_url,
        "replication_factor": 1,
    }
    servers = settings.bootstrap_servers
    connect(servers, "holdfast_default", conn_type="holdfast", password=TOKEN, extra=extra)
    monkeypatch.setenv("SCRIPTED", str(tmp_path))
    folder = airflow_home.SCRIPTED
    scripted = BundleDagBag(dag_folder=folder, bundle_path=folder, bundle_name="scripted")
    admin, topic = started.app.kafka.admin(), started.app.topic("kv")

    def verified(policy: str) -> Any:
        set_topic_configs(admin, topic, {"cleanup.policy": policy, "retention.ms": "-1"})
        return scripted.dags[f"{NAME}_verify"].test()

    yield verified
    set_topic_configs(admin, topic, {"cleanup.policy": "compact"})


def test_a_dag_that_fails_is_told_once_and_its_recovery(
    verified: Callable[[str], Any], tmp_path: Path
) -> None:
    def told(who: str) -> list[str]:
        path = tmp_path / who
        return path.read_text().splitlines() if path.exists() else []

    def states(run: Any) -> dict[str, str]:
        return {ti.task_id: str(ti.state) for ti in run.get_task_instances()}

    alarm, over = f"alarm {NAME}_verify", f"recovery {NAME}_verify"
    (tmp_path / "second.broken").touch()
    run = verified("delete")
    assert run.state == DagRunState.FAILED
    assert states(run) == {"verify": "failed", "tell": "failed"}
    why = run.get_task_instance("verify").xcom_pull("verify", key="why")
    assert "cleanup-policy" in why
    assert (told("first"), told("second")) == ([alarm], [])
    (tmp_path / "second.broken").unlink()
    for _ in range(2):
        run = verified("delete")
        assert run.state == DagRunState.FAILED, "that it was told does not make it a success"
        assert states(run) == {"verify": "failed", "tell": "success"}
        assert told("first") == told("second") == [alarm]
    for _ in range(2):
        run = verified("compact")
        assert run.state == DagRunState.SUCCESS
        assert told("first") == told("second") == [alarm, over]
