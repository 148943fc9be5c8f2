"""A lost store is sensed, planned, approved where it must be, restored by its host, verified."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from airflow.api_fastapi.app import create_app, get_auth_manager, purge_cached_app
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.models.hitl import HITLDetail
from airflow.models.taskinstance import TaskInstance
from airflow.models.trigger import Trigger
from airflow.sdk import DAG, DagRunState
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.triggers.base import BaseTrigger, TriggerEvent
from airflow.utils.session import create_session
from fastapi.testclient import TestClient
from sqlalchemy import select

from holdfast_airflow.operators.restore import (
    ApproveRestoreOperator,
    PlanRestoreOperator,
    ReportRestoreOperator,
    RestoreOperator,
)
from holdfast_airflow.triggers.restore import RestoreTrigger
from holdfast_airflow.triggers.resumed import StreamResumedTrigger
from state_lib.apps.restoring import ask_plans
from state_lib.client.http import HostHttp
from state_lib.digests.live import live_digests
from state_lib.errors import HoldfastError
from state_lib.host.placement import owner_of
from state_lib.kafka import Kafka
from state_lib.restore.plan import RestorePlan
from state_lib.specs import Topology
from state_lib.stack import Stack
from tests.dags.conftest import Connect
from tests.support import airflow_home
from tests.support.apps import KV, SOURCE, WIN, App
from tests.support.host_process import TOKEN, Hosts
from tests.support.hosts import publish
from tests.support.waiting import until

APP, CONN, PARTITIONS, ROWS = "restored", "holdfast_default", 2, 3000


class Group(Hosts):
    """Two hosts that leave lost stores alone, with something in each task."""

    n = 0

    def fill(self) -> None:
        """One more batch for every task: overwrites, new keys."""
        self.n += 1
        for partition in range(PARTITIONS):
            rows = {f"{i}".encode(): f"{self.n} {i}".encode() for i in range(ROWS)}
            self.commit(self.n, rows, partition)

    def owner(self, partition: int) -> str:
        return owner_of(APP, partition, self.settings.host_addresses).id

    def directory(self, partition: int) -> Path:
        return self.state(self.owner(partition)) / str(partition)

    def kill(self, partition: int) -> None:
        process = self.processes[self.owner(partition)]
        process.kill()
        process.wait()

    def seen(self, partition: int) -> dict[str, Any]:
        """The task as its host lists it; nothing while the host does not answer."""
        address = owner_of(APP, partition, self.settings.host_addresses)
        with closing(HostHttp(address, TOKEN, 5.0)) as http:
            try:
                tasks = http.get(f"/v1/apps/{APP}/stores", patient=False)["tasks"]
            except HoldfastError:
                return {}
        return next(one for one in tasks if one["partition"] == partition)

    def is_(self, state: str, partition: int) -> None:
        """Wait until a task is in a state."""
        until(lambda: self.seen(partition).get("state") == state, 90, state)

    def lose(self, partition: int = 0) -> None:  # type: ignore[override]
        """SIGKILL its host, remove a task's directory, start the host."""
        self.kill(partition)
        shutil.rmtree(self.directory(partition))
        self.launch()
        self.is_("quarantined", partition)

    def corrupt(self, partition: int = 0) -> None:
        """As `lose`, and the directory is there and cannot be opened."""
        self.kill(partition)
        (self.directory(partition) / "CURRENT").write_text("MANIFEST-999999\n")
        self.launch()
        self.is_("quarantined", partition)

    def digests(self) -> dict[str, str]:
        """Of all tasks' stores."""
        hosts = self.settings.host_addresses
        found = live_digests(self.app.topology, hosts, TOKEN)
        assert not found.failed
        return {
            f"{t.partition} {name}": str(d) for t in found.tasks for name, d in t.stores.items()
        }

    def plan(self, partition: int = 0, source: str | None = None) -> RestorePlan:
        return ask_plans(self.settings, APP, [partition], source)[0]

    def restored(self, partition: int = 0) -> dict[str, Any] | None:
        """The last restore that its host was asked for."""
        address = owner_of(APP, partition, self.settings.host_addresses)
        with closing(HostHttp(address, TOKEN, 5.0)) as http:
            try:
                return http.get(f"/v1/apps/{APP}/tasks/{partition}/restore", patient=False)
            except HoldfastError:
                return None


@pytest.fixture(scope="module")
def running(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    kafka = Kafka.of(stack.settings)
    topology = Topology(APP, PARTITIONS, (KV, WIN), (), (SOURCE,))
    app = App(kafka, topology, tmp_path_factory.mktemp(APP))
    app.create()
    made = Group(app, 2, restore_mode="orchestrated", flush_interval_s=1.0)
    try:
        made.start(publish(app, made.settings.host_addresses))
        yield made
    finally:
        made.stop()


@pytest.fixture
def group(running: Group, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> Group:
    """All tasks open and filled; this process' settings are those of Airflow's workers."""
    for name, value in running.settings.as_environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("HOLDFAST_TOKEN")
    running.armed.write_text("")
    connect(
        running.settings.bootstrap_servers,
        CONN,
        conn_type="holdfast",
        password=TOKEN,
        extra={"hosts": running.settings.hosts},
    )
    running.launch()
    for partition in range(PARTITIONS):
        until(lambda p=partition: running.seen(p), 90)  # type: ignore[misc]
        if running.seen(partition)["state"] == "quarantined":
            asyncio.run(first(RestoreTrigger(APP, [running.plan(partition).to_json()])))
        running.is_("open", partition)
    running.fill()
    return running


@pytest.fixture
def dag(bag: BundleDagBag) -> DAG:
    del bag  # its bundles are where `dag.test` looks
    folder = airflow_home.SCRIPTED
    scripted = BundleDagBag(dag_folder=folder, bundle_path=folder, bundle_name="scripted")
    return scripted.dags[f"{APP}_restore"]


async def first(trigger: BaseTrigger) -> dict[str, Any]:
    """The event of a trigger, as it comes out of Airflow's database."""
    path, kwargs = trigger.serialize()
    assert path == f"{type(trigger).__module__}.{type(trigger).__qualname__}"
    stored = Trigger._decrypt_kwargs(Trigger.encrypt_kwargs(kwargs))
    assert stored == kwargs
    async for event in type(trigger)(**stored).run():
        assert isinstance(event, TriggerEvent)
        payload: dict[str, Any] = event.payload
        return payload
    raise AssertionError("the trigger ended without an event")


def states(run: Any) -> dict[str, str]:
    return {ti.task_id: str(ti.state) for ti in run.get_task_instances()}


def xcom(run: Any, task: str, key: str = "return_value") -> Any:
    return run.get_task_instance(task).xcom_pull(task, key=key)


# ---------------------------------------------------------------- nobody is asked


def test_a_deleted_directory_comes_back_with_no_person(
    group: Group, dag: DAG, capsys: pytest.CaptureFixture[str]
) -> None:
    before = group.digests()
    group.lose(0)
    began = time.monotonic()
    run = dag.test()
    said = capsys.readouterr().out
    assert run.state == DagRunState.SUCCESS, said
    assert set(states(run).values()) == {"success"}
    assert xcom(run, "watch") == [f"{APP}/0"]
    (plan,) = xcom(run, "plan")
    assert (plan["task"], plan["source"], plan["discards"]) == (f"{APP}/0", "changelog", [])
    assert xcom(run, "approve") == {"asked": False}
    (restored,) = xcom(run, "restore")
    assert (restored["task"], restored["state"]) == (f"{APP}/0", "done")
    report = xcom(run, "report")
    assert report["verified"]
    assert report["stream"] == f"no driver of {APP} runs: the stream reads on from here once " + (
        "one is started"
    )
    assert 0 < report["seconds"] < 60
    assert "(100 %)" in said
    assert f"kv: {group.digests()['0 kv']}" in said
    assert group.digests() == before
    took = time.monotonic() - began
    print(f"sensed to verified: {report['seconds']} s; the whole run: {took:.1f} s")  # noqa: T201
