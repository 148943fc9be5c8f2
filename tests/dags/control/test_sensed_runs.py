"""Sensors in runs of DAGs: each waits while all is well; after a real failure its run goes on.

Those of hosts, drivers, stores and snapshots are in the runs of `test_incidents` and
`test_restore`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DagRunState

from state_lib.changelog.admin import set_topic_configs
from state_lib.config import Settings
from state_lib.kafka import Kafka
from state_lib.stack.ports import free_port
from tests.dags.conftest import scripted_dag
from tests.dags.control.test_sensors import small
from tests.integration.test_disk_full import may_mount
from tests.support.apps import KV, WIN, App, app_of
from tests.support.brokers import running_broker
from tests.support.environment import set_environment
from tests.support.host_process import Hosts
from tests.support.hosts import publish
from tests.support.repeated import made, write
from tests.support.sensing import QUIET_LOOKS, Looks
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("connect")


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch, api: None) -> Looks:  # noqa: ARG001 - connections
    return Looks(monkeypatch)


@pytest.fixture
def app(settings: Settings, request: pytest.FixtureRequest, tmp_path: Path) -> App:
    """Named as its DAG."""
    found = app_of(Kafka.of(settings), request.param, tmp_path, [KV, WIN])
    found.topology = replace(found.topology, sources=())
    found.create()
    return found


@pytest.fixture
def hosts(app: App, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    running = Hosts(app)
    set_environment(monkeypatch, running.settings)
    try:
        running.start(publish(app))
        running.commit(1, {b"k": b"v"})
        yield running
    finally:
        running.stop()


def sensed(app: App, looks: Looks, failure: Callable[[], object]) -> dict[str, Any]:
    """What the sensor of a run returns; the failure is made while it waits."""

    def fail() -> None:
        until(lambda: looks.count >= QUIET_LOOKS, 300, "looked at")  # its DAG is read first
        well.append(looks.last.conditions == ())
        failure()

    well: list[bool] = []
    failing = threading.Thread(target=fail)
    failing.start()
    try:
        run = scripted_dag(app.name).test()
    finally:
        failing.join()
    assert well == [True], "it waited while all was well"
    assert run.state == DagRunState.SUCCESS
    ti = run.get_task_instance("sense")
    assert ti is not None
    found = ti.xcom_pull("sense")
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("app", ["sensed_orphaned"], indirect=True)
def test_tasks_of_a_host_that_stays_down(app: App, hosts: Hosts, looks: Looks) -> None:
    found = sensed(app, looks, hosts.processes["host-1"].kill)
    assert (found["name"], found["tasks"]) == ("task-without-owner", [f"{app.name}/0"])


@pytest.mark.parametrize(
    ("app", "store", "config", "page"),
    [
        ("sensed_deleting", "kv", {"cleanup.policy": "delete"}, "cleanup-policy"),
        ("sensed_shortened", "win", {"retention.ms": "60000"}, "retention"),
    ],
    indirect=["app"],
)
def test_a_changelog_whose_settings_lose_state(
    app: App, looks: Looks, store: str, config: dict[str, str], page: str
) -> None:
    publish(app)
    topic, admin = app.topic(store), app.kafka.admin()
    found = sensed(app, looks, lambda: set_topic_configs(admin, topic, config))
    assert (found["name"], found["subject"]) == ("changelog-unsafe", topic)
    assert found["page"] == page


def test_a_cleaner_that_is_off(
    looks: Looks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_broker(tmp_path / "broker", extra={"log.cleaner.enable": "false"}) as broker:
        kafka = Kafka({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        app = made(kafka, "sensed_dirty", tmp_path)
        app.topology = replace(app.topology, sources=())
        publish(app)
        write(app, 2)
        settings = Settings.load(
            home=tmp_path / "home",
            bootstrap_servers=broker.bootstrap,
            hosts=f"host-1=127.0.0.1:{free_port()}/{free_port()}",
        )
        set_environment(monkeypatch, settings)
        found = sensed(app, looks, lambda: write(app, 12))
    assert (found["name"], found["subject"]) == ("compaction-stuck", app.topic("kv"))
    assert found["document"] == "docs/runbook/compaction.md"
    assert "were never cleaned" in found["seen"]


@pytest.mark.skipif(not may_mount(), reason="needs unshare(1) and user namespaces")
@pytest.mark.parametrize("app", ["sensed_full"], indirect=True)
def test_a_disk_that_is_filled(app: App, hosts: Hosts, looks: Looks) -> None:
    with ExitStack() as stack:
        found = sensed(app, looks, stack.enter_context(small(hosts)))
    assert (found["name"], found["subject"]) == ("disk-filling", "host-1")
