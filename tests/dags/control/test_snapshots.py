"""Snapshots taken and pruned by Airflow: the real DAGs against a real broker and real hosts."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.models.trigger import Trigger
from airflow.sdk import DAG, DagRunState, TaskInstanceState
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred
from airflow.triggers.base import TriggerEvent

from holdfast_airflow.hooks.holdfast import HoldfastHook
from holdfast_airflow.operators.prune import PruneSnapshotsOperator
from holdfast_airflow.operators.snapshots import SnapshotStoresOperator, request_of
from holdfast_airflow.triggers.snapshots import SnapshotsTrigger
from state_lib.client.snapshots import SnapshotClient
from state_lib.errors import LogLost
from state_lib.kafka import Kafka
from state_lib.snapshots.listing import list_snapshots
from state_lib.snapshots.manifest import Manifest
from state_lib.specs import Topology
from state_lib.stack import Stack
from tests.dags.conftest import Connect
from tests.support import airflow_home
from tests.support.apps import KV, SOURCE, App, app_of
from tests.support.host_process import TOKEN, Hosts
from tests.support.hosts import address, publish
from tests.support.waiting import until

APP, TASKS, CONN = "snapped", range(3), "holdfast_default"
ROUND = "state_lib.client.snapshot_round"


@pytest.fixture(scope="module")
def started(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Two host processes and an application of three tasks, with something in each."""
    topology = Topology(APP, len(TASKS), (KV,), (), (SOURCE,))
    app = App(Kafka.of(stack.settings), topology, tmp_path_factory.mktemp(APP))
    app.create()
    running = Hosts(app, 2)
    try:
        running.start(publish(app))
        for task in TASKS:
            running.commit(1, {b"%d" % i: os.urandom(100) for i in range(1000)}, task)
        yield running
    finally:
        running.stop()


@pytest.fixture
def hosts(started: Hosts, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    """Both run; Airflow knows them by the connection alone."""
    started.armed.write_text("")
    started.start(started.epoch)
    settings = started.settings
    extra = {"hosts": settings.hosts, "snapshots_url": settings.snapshots_url}
    servers = settings.bootstrap_servers
    connect(servers, CONN, conn_type="holdfast", password=TOKEN, extra=extra)
    monkeypatch.setattr("holdfast_airflow.triggers.snapshots.TELL_EVERY_S", 0.0)
    yield started
    started.armed.write_text("")


@pytest.fixture
def scripted(bag: BundleDagBag) -> BundleDagBag:
    del bag  # its bundles are where `dag.test` looks
    folder = airflow_home.SCRIPTED
    return BundleDagBag(dag_folder=folder, bundle_path=folder, bundle_name="scripted")


def listed(hosts: Hosts, request: str | None = None) -> list[list[Manifest]]:
    """Of each task; those of one request."""
    found = [list_snapshots(hosts.url, APP, task) for task in TASKS]
    return [[m for m in one if request is None or request in m.requests] for one in found]


def operator(**given: Any) -> SnapshotStoresOperator:
    with DAG("alone", schedule=None):
        return SnapshotStoresOperator(task_id="snapshot", **{"app": APP, **given})


def made(request: str, **given: Any) -> SnapshotsTrigger:
    """As it comes out of Airflow's database."""
    trigger = SnapshotsTrigger(APP, list(TASKS), request, **{"look_every_s": 0.1, **given})
    path, kwargs = trigger.serialize()
    assert path == "holdfast_airflow.triggers.snapshots.SnapshotsTrigger"
    stored = Trigger._decrypt_kwargs(Trigger.encrypt_kwargs(kwargs))
    assert stored == kwargs
    return SnapshotsTrigger(**stored)


async def first(trigger: SnapshotsTrigger) -> dict[str, Any]:
    async for event in trigger.run():
        assert isinstance(event, TriggerEvent)
        payload: dict[str, Any] = event.payload
        return payload
    raise AssertionError("the trigger ended without an event")


def event_of(trigger: SnapshotsTrigger) -> dict[str, Any]:
    return asyncio.run(asyncio.wait_for(first(trigger), 120))


def ids(event: dict[str, Any]) -> list[str]:
    assert (event["event"], [job["error"] for job in event["jobs"]]) == ("ended", [None] * 3)
    return [job["snapshot"] for job in event["jobs"]]


def test_each_run_takes_one_of_every_task(
    hosts: Hosts, scripted: BundleDagBag, capsys: pytest.CaptureFixture[str]
) -> None:
    before = listed(hosts)
    run = scripted.dags[f"{APP}_snapshots"].test()
    assert run.state == DagRunState.SUCCESS
    ti = run.get_task_instance("snapshot")
    assert ti is not None
    found = ti.xcom_pull("snapshot")
    newest = [one[0] for one in listed(hosts)]
    assert [one["task"] for one in found] == [f"{APP}/{task}" for task in TASKS]
    assert [one["id"] for one in found] == [m.id for m in newest]
    assert [one["bytes"] for one in found] == [m.size_bytes for m in newest]
    assert {one["host"] for one in found} == {"host-1", "host-2"}
    said = capsys.readouterr().out
    assert f"{APP}/0 on {found[0]['host']}: {found[0]['id']}" in said
    assert "of 3 snapshots have ended" in said
    scripted.dags[f"{APP}_snapshots"].test()
    assert [len(one) for one in listed(hosts)] == [len(one) + 2 for one in before]


def test_the_same_request_finds_what_was_taken(hosts: Hosts) -> None:
    """Also after others took some, and after the hosts were killed."""
    taken = ids(event_of(made("once")))
    assert ids(event_of(made("once"))) == taken
    other = ids(event_of(made("other")))
    assert not set(other) & set(taken)
    assert ids(event_of(made("once"))) == taken
    for process in hosts.processes.values():
        process.kill()
        process.wait()
    hosts.start(hosts.epoch)
    assert ids(event_of(made("once"))) == taken
    assert [len(one) for one in listed(hosts, "once")] == [1] * 3


@pytest.mark.parametrize("point", ["snapshot.before_manifest", "snapshot.after_manifest"])
def test_hosts_that_are_killed_meanwhile_go_on_where_they_were(hosts: Hosts, point: str) -> None:
    hosts.armed.write_text(f"{point}=kill")

    def mended() -> None:
        for process in hosts.processes.values():
            process.wait()
        hosts.armed.write_text("")
        hosts.launch()

    person = threading.Thread(target=mended)
    person.start()
    taken = ids(event_of(made(point)))
    person.join()
    assert [[m.id] for one in listed(hosts, point) for m in one] == [[one] for one in taken]


def test_a_triggerer_that_goes_leaves_the_snapshots_to_the_next_one(hosts: Hosts) -> None:
    hosts.armed.write_text("snapshot.checkpoint=sleep:3")

    async def cancelled() -> None:
        task = asyncio.create_task(first(made("handed on")))
        await asyncio.sleep(1.5)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    taken = ids(event_of(made("handed on")))
    assert [[m.id] for one in listed(hosts, "handed on") for m in one] == [[one] for one in taken]


def test_a_request_joins_the_snapshot_that_runs(hosts: Hosts) -> None:
    hosts.armed.write_text("snapshot.checkpoint=sleep:3")
    running: list[Any] = []
    client = SnapshotClient(hosts.settings, APP)
    person = threading.Thread(target=lambda: running.extend(client.create(None, seen.append)))
    seen: list[Any] = []
    person.start()
    until(lambda: len(seen) >= 3)
    taken = ids(event_of(made("joined")))
    person.join()
    assert taken == [job["snapshot"] for job in running]
    assert ids(event_of(made("joined"))) == taken


def test_a_host_that_does_not_answer_is_named(
    hosts: Hosts,
    scripted: BundleDagBag,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It takes no other host's time: theirs are taken, and a retry may help."""
    monkeypatch.setattr(f"{ROUND}.ANSWER_S", 1.0)
    monkeypatch.setattr(f"{ROUND}.ABSENT_S", 3.0)
    before = listed(hosts)
    os.kill(hosts.processes["host-2"].pid, signal.SIGSTOP)
    try:
        run = scripted.dags[f"{APP}_snapshots"].test()
        event = event_of(made("unanswered"))
    finally:
        os.kill(hosts.processes["host-2"].pid, signal.SIGCONT)
    assert run.state == DagRunState.FAILED
    assert "have no snapshot of this run" in capsys.readouterr().out
    with pytest.raises(AirflowException, match=r"on host-2: .*cannot be reached.*status") as away:
        operator().taken({}, event)
    assert not isinstance(away.value, AirflowFailException)
    theirs = [task for task in TASKS if event["jobs"][task]["host"] == "host-1"]
    assert theirs
    assert all(len(listed(hosts)[task]) == len(before[task]) + 2 for task in theirs)


def test_storage_that_is_gone_is_named(
    hosts: Hosts, scripted: BundleDagBag, capsys: pytest.CaptureFixture[str]
) -> None:
    """What hosts cannot write to, and what cannot be pruned; the next run is well."""
    ids(event_of(made("at home")))
    folder = Path(hosts.url.removeprefix("file://"))
    aside = folder.rename(folder.with_name("aside"))
    folder.write_text("a file where storage should be")
    try:
        event = event_of(made("homeless"))
        with pytest.raises(AirflowException, match=rf"{APP}/0 on host-\d: .*{hosts.url}"):
            operator().taken({}, event)
        pruned = scripted.dags[f"{APP}_prune"].test()
        assert pruned.state == DagRunState.FAILED
        assert f"AirflowException: snapshot storage {hosts.url}" in capsys.readouterr().out
    finally:
        folder.unlink()
        aside.rename(folder)
    assert ids(event_of(made("homeless")))


def test_what_takes_too_long(hosts: Hosts) -> None:
    hosts.armed.write_text("snapshot.checkpoint=sleep:3")
    event = event_of(made("slow", until=0.0))
    assert event["event"] == "timed_out"
    with pytest.raises(AirflowException, match=r"has not ended in time.*log of host") as late:
        operator().taken({}, event)
    assert not isinstance(late.value, AirflowFailException)
    hosts.armed.write_text("")
    ids(event_of(made("slow")))
    assert [len(one) for one in listed(hosts, "slow")] == [1] * 3


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"HOLDFAST_TOKEN": "a-guess"}, "token"),
        ({"HOLDFAST_HOSTS": "nonsense"}, "flight-port"),
    ],
)
def test_what_a_person_must_correct(hosts: Hosts, env: dict[str, str], said: str) -> None:
    del hosts
    with pytest.raises(AirflowFailException, match=said):
        operator().taken({}, event_of(made("wrong", env=env)))


def deferred(**given: Any) -> SnapshotsTrigger:
    ti = SimpleNamespace(
        dag_id="dag", run_id="run", task_id="snapshot", map_index=-1, max_tries=3, try_number=1
    )
    context: Any = {"ti": ti}
    with pytest.raises(TaskDeferred) as waiting:
        operator(**given).execute(context)
    trigger = waiting.value.trigger
    assert isinstance(trigger, SnapshotsTrigger)
    return trigger


def test_some_tasks_alone(hosts: Hosts) -> None:
    del hosts
    assert deferred(tasks=[1]).partitions == [1]
    with pytest.raises(AirflowFailException, match="tasks 0 to 2, not 3"):
        operator(tasks=[3]).execute({})


@pytest.mark.usefixtures("api")
def test_an_application_whose_topology_is_lost_is_not_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lost(*_: object) -> None:
        raise LogLost("its topology topic is gone: 'holdfast repair topology snapped'", app=APP)

    monkeypatch.setattr(HoldfastHook, "declared", lost)
    with pytest.raises(AirflowFailException, match="holdfast repair topology"):
        operator(skip_unknown=True).execute({})


def test_a_clear_is_another_request_and_a_retry_is_not() -> None:
    about: dict[str, Any] = {"dag_id": "a", "run_id": "b", "task_id": "c", "map_index": -1}
    of = request_of(SimpleNamespace(**about, max_tries=3, try_number=1))
    assert of == request_of(SimpleNamespace(**about, max_tries=3, try_number=2))
    assert of != request_of(SimpleNamespace(**about, max_tries=5, try_number=2))
    assert of != request_of(SimpleNamespace(**{**about, "map_index": 0}, max_tries=3))


@pytest.mark.parametrize("what", ["snapshots", "prune"])
def test_an_application_that_has_not_run_is_skipped(
    hosts: Hosts, scripted: BundleDagBag, what: str
) -> None:
    del hosts
    run = scripted.dags[f"unknown_{what}"].test()
    assert run.state == DagRunState.SUCCESS
    assert [ti.state for ti in run.get_task_instances()] == [TaskInstanceState.SKIPPED]
    with DAG("strict", schedule=None):
        strict = PruneSnapshotsOperator(task_id="prune", app="unknown", keep=1)
    for one in (operator(app="unknown"), strict):
        with pytest.raises(AirflowFailException, match=r"has never run|there is no application"):
            one.execute({})


def test_an_application_that_no_host_knows(hosts: Hosts, tmp_path: Path) -> None:
    """Kafka knows it, by a driver that has other hosts."""
    app = app_of(hosts.app.kafka, "unmet_s", tmp_path, [KV])
    app.create()
    publish(app, [address("elsewhere")])
    ti: Any = SimpleNamespace(dag_id="a", run_id="unmet", task_id="c", map_index=-1, max_tries=0)
    asking = operator(app=app.name)
    with pytest.raises(TaskDeferred) as raised:
        asking.execute({"ti": ti})
    event = event_of(SnapshotsTrigger(**raised.value.trigger.serialize()[1]))
    with pytest.raises(AirflowFailException) as failed:
        asking.taken({}, event)
    said = str(failed.value)
    assert "1 of 1 tasks of unmet_s have no snapshot" in said
    assert re.search(r"host 'host-[12]' knows no application 'unmet_s'", said)
    assert "start its job" in said
    assert "'holdfast drivers unmet_s'" in said


def test_pruning_keeps_the_newest_and_those_of_savepoints(
    hosts: Hosts, scripted: BundleDagBag
) -> None:
    saved = SnapshotClient(hosts.settings, APP).savepoint()
    ids(event_of(made("one more")))
    newest = ids(event_of(made("newest")))
    before = listed(hosts)
    with DAG("plan", schedule=None):
        plan = PruneSnapshotsOperator(task_id="plan", app=APP, keep=1, only_plan=True)
        none = PruneSnapshotsOperator(task_id="none", app=APP, keep=0)
    would = plan.execute({})
    assert listed(hosts) == before
    run = scripted.dags[f"{APP}_prune"].test()
    assert run.state == DagRunState.SUCCESS
    ti = run.get_task_instance("prune")
    assert ti is not None
    done = ti.xcom_pull("prune")
    assert [one["pruned"] for one in done["tasks"]] == [one["pruned"] for one in would["tasks"]]
    kept = [[m.id for m in one] for one in listed(hosts)]
    assert kept == [list(pair) for pair in zip(newest, saved.snapshots, strict=True)]
    for task, one in enumerate(done["tasks"]):
        assert one["task"] == f"{APP}/{task}"
        assert sorted([*one["kept"], *one["pruned"]]) == sorted(m.id for m in before[task])
    with pytest.raises(AirflowFailException, match="keep at least the newest"):
        none.execute({})
