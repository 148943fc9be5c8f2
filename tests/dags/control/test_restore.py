"""A lost store is sensed, planned, approved where it must be, restored by its host, verified."""

from __future__ import annotations

import asyncio
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.models.trigger import Trigger
from airflow.providers.standard.exceptions import HITLTimeoutError
from airflow.sdk import DAG, DagRunState
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    TaskDeferred,
)
from airflow.triggers.base import BaseTrigger, TriggerEvent
from fastapi.testclient import TestClient

from holdfast_airflow.hooks.holdfast import settings_while_there
from holdfast_airflow.operators.restore import (
    ApproveRestoreOperator,
    PlanRestoreOperator,
    ReportRestoreOperator,
    RestoreOperator,
)
from holdfast_airflow.triggers import restore as module
from holdfast_airflow.triggers.restore import RestoreTrigger
from holdfast_airflow.triggers.resumed import StreamResumedTrigger
from state_lib.apps.restore_watch import RestoreWatch
from state_lib.apps.restoring import ask_plans
from state_lib.client.http import HostHttp
from state_lib.config import Settings
from state_lib.digests.live import live_digests
from state_lib.drivers.identity import Identity
from state_lib.drivers.members import living_drivers
from state_lib.drivers.presence import Presence
from state_lib.errors import Busy, HoldfastError
from state_lib.kafka import Kafka
from state_lib.protocol.placement import owner_of
from state_lib.restore.plan import RestorePlan
from state_lib.specs import Topology
from state_lib.stack import Stack
from state_lib.stack.ports import free_port
from tests.dags.conftest import Connect
from tests.support import airflow_home
from tests.support.apps import KV, SOURCE, WIN, App
from tests.support.dripping import dripping
from tests.support.environment import set_environment
from tests.support.host_process import TOKEN, Hosts
from tests.support.hosts import publish
from tests.support.person import Person, airflows_api
from tests.support.tries import Tries
from tests.support.waiting import SLOWNESS, until
from tests.unit.restore.test_stale import OLD as DISCARDING

APP, CONN, PARTITIONS, ROWS = "restored", "holdfast_default", 2, 3000
NOWHERE = "MANIFEST-999999\n"


def led_nowhere(folder: Path) -> dict[Path, bytes]:
    """What a directory has its other files by; returns what was written."""
    (folder / "CURRENT").write_text(NOWHERE)
    return {folder / "CURRENT": NOWHERE.encode()}


def zeroed(folder: Path) -> dict[Path, bytes]:
    """All SST files, as by a bad disk; returns what was written."""
    written = {file: bytes(file.stat().st_size) for file in folder.glob("*.sst")}
    for file, zeros in written.items():
        file.write_bytes(zeros)
    assert written
    return written


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

    def corrupt(
        self, partition: int = 0, damage: Callable[[Path], dict[Path, bytes]] = led_nowhere
    ) -> dict[Path, bytes]:
        """Its host ends, and flushes; the directory is there and cannot be opened.

        Returns what was damaged.
        """
        process = self.processes[self.owner(partition)]
        process.terminate()
        process.wait(60 * SLOWNESS)
        damaged = damage(self.directory(partition))
        self.launch()
        self.is_("quarantined", partition)
        return damaged

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

    def planned(self, partition: int) -> RestorePlan | None:
        """Its plan; nothing while it is just tried to be opened."""
        try:
            return self.plan(partition)
        except Busy:
            return None

    def rebuilt(self, partition: int) -> int:
        """How often its host has built a directory of the task since it was started last."""
        lines = (self.app.root / f"{self.owner(partition)}.log").read_text().splitlines()
        starts = [i for i, line in enumerate(lines) if '"host is up"' in line]
        name = f'"task": "{APP}/{partition}"'
        return sum(name in one and '"rebuilt"' in one for one in lines[starts[-1] :])

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
    set_environment(monkeypatch, running.settings)
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
            plan = until(lambda p=partition: running.planned(p), 60)  # type: ignore[misc]
            asyncio.run(first(RestoreTrigger(APP, [plan.to_json()])))
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
    assert xcom(run, "approve") == {"asked": False, "approved": []}
    (restored,) = xcom(run, "restore")
    assert (restored["task"], restored["state"]) == (f"{APP}/0", "done")
    report = xcom(run, "report")
    assert report["verified"]
    assert report["stream"].startswith(f"no driver of {APP} runs")
    assert 0 < report["seconds"] < 60
    assert "(100 %)" in said
    assert f"kv: {group.digests()['0 kv']}" in said
    assert group.digests() == before
    took = time.monotonic() - began
    print(f"sensed to verified: {report['seconds']} s; the whole run: {took:.1f} s")  # noqa: T201


def test_a_lost_disk_comes_back_with_no_person(
    group: Group, dag: DAG, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of a host's, also what it remembers of its applications: it learns that from Kafka."""
    before, host = group.digests(), group.owner(0)
    theirs = [p for p in range(PARTITIONS) if group.owner(p) == host]
    tasks = [f"{APP}/{p}" for p in theirs]
    Hosts.lose(group, host)
    assert not group.state(host).exists()
    group.launch()
    for partition in theirs:
        group.is_("quarantined", partition)
    assert group.state(host).exists(), "it is remembered again"
    assert not [p for p in theirs if group.directory(p).exists()], "nothing was built"
    run = dag.test()
    said = capsys.readouterr().out
    assert run.state == DagRunState.SUCCESS, said
    assert xcom(run, "watch") == tasks
    assert xcom(run, "approve") == {"asked": False, "approved": []}
    done = {one["task"]: one["state"] for one in xcom(run, "restore")}
    assert done == dict.fromkeys(tasks, "done")
    assert xcom(run, "report")["verified"]
    assert [group.rebuilt(p) for p in theirs] == [1] * len(theirs)
    assert group.digests() == before


def test_what_a_person_must_correct_fails_the_run_and_is_said(
    group: Group,
    dag: DAG,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("holdfast_airflow.triggers.condition.PATIENCE_S", 1.0)
    settings = group.settings
    given = {"conn_type": "holdfast", "password": "a-guess", "extra": {"hosts": settings.hosts}}
    connect(settings.bootstrap_servers, CONN, **given)
    run = dag.test()
    assert run.state == DagRunState.FAILED
    assert states(run)["watch"] == "failed"
    assert "every state host refuses the token" in capsys.readouterr().out


# ---------------------------------------------------------------- a person is asked


@pytest.fixture(scope="module")
def web(database: None) -> Iterator[TestClient]:  # noqa: ARG001 - it must be there
    with airflows_api() as made:
        yield made


@pytest.fixture
def person(web: TestClient) -> Iterator[Person]:
    made = Person(web, f"{APP}_restore")
    yield made
    made.done()


@pytest.mark.parametrize("damage", [led_nowhere, zeroed])
def test_what_is_discarded_is_asked_for_and_waits(
    group: Group,
    dag: DAG,
    person: Person,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[Path], dict[Path, bytes]],
) -> None:
    before = group.digests()
    damaged = group.corrupt(1, damage)

    def still_lost() -> None:
        assert group.seen(1)["state"] == "quarantined"
        assert {file: file.read_bytes() for file in damaged} == damaged

    person.will("Approve", first=still_lost)
    run = dag.test()
    person.done()
    assert run.state == DagRunState.SUCCESS, capsys.readouterr().out
    assert person.refused == [403], "a viewer's answer does not count"
    (body,) = person.bodies
    assert f"### {APP}/1: from changelog" in body
    assert "- **discarded**: the present directory" in body
    assert "| local | not valid |" in body
    assert xcom(run, "approve")["chosen_options"] == ["Approve"]
    (plan,) = xcom(run, "plan")
    assert xcom(run, "approve")["approved"] == [RestorePlan.from_json(plan).id]
    assert xcom(run, "report")["verified"]
    assert group.digests() == before


def test_a_no_changes_nothing(group: Group, dag: DAG, person: Person) -> None:
    group.corrupt(1)
    person.will("Reject")
    run = dag.test()
    person.done()
    assert states(run) == {
        "watch": "success",
        "plan": "success",
        "approve": "success",
        "restore": "skipped",
        "report": "skipped",
    }
    assert group.seen(1)["state"] == "quarantined"
    assert (group.directory(1) / "CURRENT").read_text() == NOWHERE
    assert group.restored(1) is None


def test_a_task_that_is_cleared_does_not_ask_by_its_old_question(
    group: Group, dag: DAG, person: Person, capsys: pytest.CaptureFixture[str]
) -> None:
    """Airflow would show the plan of before: a person would approve what nobody has read."""
    folder = snapshot_taken(group, 1)
    group.corrupt(1)
    person.will_clear("plan", "approve", first=lambda: shutil.rmtree(folder))
    run = dag.test()
    person.done()
    (body,) = person.bodies
    assert f"### {APP}/1: from changelog" not in body
    assert xcom(run, "plan")[0]["source"] == "changelog", "another plan"
    assert states(run) == {
        "watch": "success",
        "plan": "success",
        "approve": "failed",
        "restore": "upstream_failed",
        "report": "upstream_failed",
    }
    assert "this is try 2 of the task" in capsys.readouterr().out
    assert group.restored(1) is None


def test_silence_is_no_approval() -> None:
    for given in ({"defaults": ["Approve"]}, {"subject": "?"}, {"body": "?"}):
        with pytest.raises(ValueError, match="no answer is taken for granted"):
            ApproveRestoreOperator(task_id="approve", app=APP, plans=[], **given)
    late = {"error": "the time is over.", "error_type": "timeout"}
    approve = ApproveRestoreOperator(task_id="approve", app=APP, plans=[])
    with pytest.raises(HITLTimeoutError):
        approve.execute_complete({}, late)
    restore = RestoreOperator(task_id="restore", app=APP, plans=[])
    kept: dict[str, Any] = {"results": [], "replans": 1, "asked": True}
    with pytest.raises(AirflowFailException, match="nobody has answered: the time is over"):
        restore.answered({}, late, [], kept)


def test_what_was_restored_before_a_no_is_reported() -> None:
    restore = RestoreOperator(task_id="restore", app=APP, plans=[])
    no, kept = {"chosen_options": ["Reject"]}, {"results": [], "replans": 1, "asked": True}
    with pytest.raises(AirflowSkipException):
        restore.answered({}, no, [], kept)
    done = [{"task": f"{APP}/0", "state": "done"}]
    assert restore.answered({}, no, [], {**kept, "results": done}) == done


@pytest.mark.usefixtures("api")
def test_what_nobody_has_approved_is_not_carried_out_unasked() -> None:
    """Somebody cleared the plan alone, or uses the operator by itself."""
    given: dict[str, Any] = {"app": "app", "plans": [DISCARDING.to_json()]}
    again = SimpleNamespace(try_number=2)  # which asks nobody
    for approved in (None, {"asked": True, "approved": ["another"]}):
        with pytest.raises(AirflowFailException, match="this is try 2 of the task"):
            attempt(RestoreOperator, again, approved=approved, **given)
    with pytest.raises(TaskDeferred):
        attempt(RestoreOperator, again, approved={"approved": [DISCARDING.id]}, **given)


def test_a_no_approves_no_plan() -> None:
    with DAG("alone", schedule=None):
        approve = ApproveRestoreOperator(task_id="approve", app=APP, plans=[])
    answer = {"responded_at": datetime.now(UTC), "responded_by_user": None}
    for choice, approved in (("Approve", ["a-plan"]), ("Reject", list[str]())):
        event: dict[str, Any] = {**answer, "params_input": {}, "chosen_options": [choice]}
        said = approve.execute_complete({}, event, asked=["a-plan"])
        assert said["approved"] == approved


def test_one_user_may_be_named_alone() -> None:
    boss = {"id": "1", "name": "boss"}
    restore = RestoreOperator(task_id="restore", app=APP, plans=[], assigned_users=boss)
    assert restore.assigned_users == [boss]


def test_who_needs_no_answer_does_not_wait_for_one(group: Group, dag: DAG) -> None:
    group.corrupt(1)
    group.lose(0)
    run = dag.test()
    assert run.state == DagRunState.SUCCESS
    assert xcom(run, "watch") == [f"{APP}/0", f"{APP}/1"]
    assert [one["task"] for one in xcom(run, "restore")] == [f"{APP}/0"]
    assert group.seen(1)["state"] == "quarantined", "the next run asks about it"


# ---------------------------------------------------------------- stale plans


def snapshot_taken(group: Group, partition: int) -> Path:
    """A snapshot of a task, and where it is."""
    with group.client(partition) as client:
        client.snapshot(APP, partition)
        until(lambda: client.snapshot_status(APP, partition)["state"] == "done", 60)
    return Path(group.url.removeprefix("file://")) / APP


def rot(folder: Path) -> None:
    """Snapshots that were whole when they were taken."""
    for file in folder.glob("*/files/*"):
        file.write_bytes(bytes(file.stat().st_size))


@pytest.mark.parametrize("harm", [shutil.rmtree, rot], ids=["pruned", "rotten"])
def test_a_plan_that_went_stale_is_planned_anew(
    group: Group,
    dag: DAG,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    harm: Callable[[Path], None],
) -> None:
    before = group.digests()
    folder = snapshot_taken(group, 0)
    group.lose(0)
    execute = ApproveRestoreOperator.execute

    def meanwhile(operator: ApproveRestoreOperator, context: Any) -> Any:
        harm(folder)
        return execute(operator, context)

    monkeypatch.setattr(ApproveRestoreOperator, "execute", meanwhile)
    run = dag.test()
    said = capsys.readouterr().out
    assert run.state == DagRunState.SUCCESS, said
    assert xcom(run, "plan")[0]["source"] == "snapshot"
    assert "is not what would be done now" in said
    assert f"Planned anew: {APP}/0: from changelog" in said
    assert xcom(run, "restore")[0]["source"] == "changelog"
    assert group.digests() == before


def test_a_new_plan_that_discards_is_asked_for_again(
    group: Group, dag: DAG, person: Person, capsys: pytest.CaptureFixture[str]
) -> None:
    before = group.digests()
    folder = snapshot_taken(group, 1)
    group.corrupt(1)
    person.will("Approve", first=lambda: shutil.rmtree(folder))
    person.will("Approve", task="restore")
    run = dag.test()
    person.done()
    assert run.state == DagRunState.SUCCESS, capsys.readouterr().out
    first_, second = person.bodies
    assert len(person.limits) == 2
    assert None not in person.limits, "nobody answers: the run ends"
    assert "| snapshot" not in second
    assert "from changelog" not in first_
    assert f"### {APP}/1: from changelog" in second
    assert group.digests() == before


def test_a_directory_that_came_back_is_not_replaced(group: Group) -> None:
    """The plan was made while it was gone: nothing of it may be discarded now."""
    group.kill(0)
    kept = group.directory(0).with_name("kept")
    group.directory(0).rename(kept)
    group.launch()
    group.is_("quarantined", 0)
    plan = group.plan(0)
    group.kill(0)
    kept.rename(group.directory(0))
    group.launch()
    group.is_("open", 0)
    event = asyncio.run(first(RestoreTrigger(APP, [plan.to_json()])))
    assert event["restores"][0]["state"] == "done", "it is open again: nothing is left to do"
    assert group.rebuilt(0) == 0
    group.kill(0)
    (group.directory(0) / "CURRENT").write_text(NOWHERE)
    group.launch()
    group.is_("quarantined", 0)
    event = asyncio.run(first(RestoreTrigger(APP, [plan.to_json()])))
    assert event["restores"][0]["state"] == "stale"
    assert "it would replace the present directory" in event["restores"][0]["why"]
    assert group.seen(0)["state"] == "quarantined"


# ---------------------------------------------------------------- once


def test_asked_twice_it_is_done_once(group: Group) -> None:
    group.lose(0)
    plans = [group.plan(0).to_json()]

    async def both() -> list[dict[str, Any]]:
        return list(await asyncio.gather(*(first(RestoreTrigger(APP, plans)) for _ in range(2))))

    one, other = (event["restores"][0] for event in asyncio.run(both()))
    assert one["state"] == other["state"] == "done"
    assert (one["seconds"], one["marker"]) == (other["seconds"], other["marker"])
    assert group.rebuilt(0) == 1
    again = asyncio.run(first(RestoreTrigger(APP, plans)))["restores"][0]
    assert (again["state"], group.rebuilt(0)) == ("done", 1), "the finished one is found"
    group.kill(0)
    group.launch()
    group.is_("open", 0)
    again = asyncio.run(first(RestoreTrigger(APP, plans)))["restores"][0]
    assert (again["state"], group.rebuilt(0)) == ("done", 0), "also by a new process"


def test_a_wish_is_granted_once(group: Group) -> None:
    """Of a task that is open, to be built anew from its changelog."""
    plan, before = group.plan(0, "changelog"), group.rebuilt(0)
    assert plan.discards
    for _ in range(2):
        event = asyncio.run(first(RestoreTrigger(APP, [plan.to_json()])))
        assert event["restores"][0]["state"] == "done"
    assert group.rebuilt(0) == before + 1
    group.kill(0)
    group.launch()
    group.is_("open", 0)
    event = asyncio.run(first(RestoreTrigger(APP, [plan.to_json()])))
    assert (event["restores"][0]["state"], group.rebuilt(0)) == ("done", 0)
    other = group.plan(0, "changelog")
    assert other.id != plan.id
    asyncio.run(first(RestoreTrigger(APP, [other.to_json()])))
    assert group.rebuilt(0) == 1, "another plan is another wish"


def test_a_host_that_is_killed_in_the_middle_goes_on(
    group: Group, dag: DAG, capsys: pytest.CaptureFixture[str]
) -> None:
    before = group.digests()
    group.lose(0)
    process = group.processes[group.owner(0)]
    group.armed.write_text("restore.before_checkpoint=kill")

    def start_again() -> None:
        process.wait(120)
        group.armed.write_text("")
        group.launch()

    thread = threading.Thread(target=start_again)
    thread.start()
    run = dag.test()
    thread.join(120)
    said = capsys.readouterr().out
    assert process.returncode == -9
    assert run.state == DagRunState.SUCCESS, said
    assert "it is tried again" in said
    assert group.digests() == before


def test_a_connection_that_cannot_be_read_is_waited_for(
    group: Group, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The triggerer's own settings may be of other hosts, which have a task of that name, too."""
    group.lose(0)
    plans, known = [group.plan(0).to_json()], group.restored(0)
    monkeypatch.setattr(module, "TELL_EVERY_S", 0.2)
    asked: list[str] = []

    def counted(conn_id: str, env: dict[str, str]) -> Settings:
        asked.append(conn_id)
        return settings_while_there(conn_id, env)

    monkeypatch.setattr(module, "settings_while_there", counted)

    async def run() -> dict[str, Any]:
        task = asyncio.create_task(first(RestoreTrigger(APP, plans, "of-another-day")))
        await asyncio.to_thread(until, lambda: len(asked) > 2, 60)
        assert not task.done()
        assert group.restored(0) == known
        settings = group.settings
        given = {"conn_type": "holdfast", "password": TOKEN, "extra": {"hosts": settings.hosts}}
        connect(settings.bootstrap_servers, "of-another-day", **given)
        return await asyncio.wait_for(task, 90 * SLOWNESS)

    assert asyncio.run(run())["restores"][0]["state"] == "done"


def test_a_trigger_that_is_cancelled_leaves_the_restore_to_the_next_one(group: Group) -> None:
    group.lose(0)
    group.armed.write_text("restore.before_checkpoint=sleep:3")
    plans = [group.plan(0).to_json()]

    async def cancelled() -> None:
        task = asyncio.create_task(first(RestoreTrigger(APP, plans)))
        await asyncio.to_thread(until, lambda: group.restored(0), 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    seen = group.restored(0)
    assert seen is not None
    assert seen["state"] == "running"
    group.armed.write_text("")
    event = asyncio.run(first(RestoreTrigger(APP, plans, kept={"of": "before"})))
    assert event["kept"] == {"of": "before"}
    assert event["restores"][0]["state"] == "done"
    assert group.rebuilt(0) == 1


# ---------------------------------------------------------------- what cannot be


def attempt(kind: type[Any], ti: Any = None, **given: Any) -> Any:
    with DAG("alone", schedule=None):
        operator = kind(task_id="alone", **{"app": APP, **given})
    return operator.execute({"ti": ti})


def test_bad_requests(group: Group) -> None:
    for tasks, why in (
        ([f"{APP}/7"], "tasks 0 to 1"),
        (["other/0"], "no task of 'restored'"),
        (["0_1"], "no task of"),
    ):
        with pytest.raises(AirflowException, match=why):
            attempt(PlanRestoreOperator, tasks=tasks)
    with pytest.raises(AirflowFailException, match="has never run"):
        attempt(PlanRestoreOperator, app="nobody-r")
    with pytest.raises(AirflowException, match="not a plan as"):
        attempt(RestoreOperator, plans=[{"task": f"{APP}/0"}])
    assert attempt(RestoreOperator, plans=[group.plan(0).to_json()]) == [], "nothing to restore"
    assert attempt(ReportRestoreOperator, restores=[])["verified"]


def test_a_wrong_token_fails_at_once(group: Group) -> None:
    plans = [group.plan(0, "changelog").to_json()]
    wrong = {"HOLDFAST_TOKEN": "a-guess"}
    event = asyncio.run(first(RestoreTrigger(APP, plans, env=wrong)))
    assert event["restores"][0]["state"] == "failed"
    assert "bearer token" in event["restores"][0]["why"]
    nonsense = {"HOLDFAST_HOSTS": "nonsense"}
    event = asyncio.run(first(RestoreTrigger(APP, plans, env=nonsense)))
    assert event["restores"][0]["state"] == "failed"


@contextmanager
def badly_answered(group: Group, how: str) -> Iterator[str]:
    """Hosts as a setting, where nobody answers well for the owner of task 0."""
    flight, http = free_port(), free_port()
    with ExitStack() as stack:
        if how == "silent":
            stack.enter_context(closing(socket.create_server(("127.0.0.1", http))))
        elif how == "slow":
            http = stack.enter_context(dripping())
        hosts = group.settings.host_addresses
        known = {a.id: f"{a.host}:{a.flight_port}/{a.http_port}" for a in hosts}
        known[group.owner(0)] = f"127.0.0.1:{flight}/{http}"
        yield ",".join(f"{host}={at}" for host, at in known.items())


@pytest.mark.parametrize("how", ["away", "silent", "slow"])
def test_a_host_that_does_not_answer_is_given_up(group: Group, how: str) -> None:
    plan = group.plan(0, "changelog")
    with badly_answered(group, how) as hosts:
        settings = group.settings.model_copy(update={"hosts": hosts})
        watch = RestoreWatch(settings, APP, [plan], away_s=2.0, answer_s=0.5)
        until(lambda: watch.look() and watch.over, 20, "over")
        watch.close()
        began = [t for t in threading.enumerate() if t.name.startswith("restores-host-")]
        until(lambda: not any(t.is_alive() for t in began), 20, "no thread is left")
    (one,) = watch.followed
    assert one.state == "failed"
    assert "given up after 2 s" in one.why


# ---------------------------------------------------------------- the stream goes on


def test_the_stream_goes_on_with_what_was_restored(group: Group) -> None:
    presence = Presence(group.app.kafka, APP, Identity.of_this_process())
    presence.join()
    try:
        places = {f"{APP}/{p}": [group.epoch, group.n] for p in range(PARTITIONS)}
        until(lambda: living_drivers(group.app.kafka, APP), 60)
        group.commit(group.n + 1, {b"ahead": b"1"}, 1)

        def waited(seconds: float) -> dict[str, Any]:
            return asyncio.run(first(StreamResumedTrigger(APP, places, time.time() + seconds)))

        late = waited(1)
        assert late["event"] == "timed_out"
        behind = f"{APP}/0 stands at commit {group.epoch}/{group.n}, others at"
        assert late["text"].startswith(behind)
        group.commit(group.n + 1, {b"ahead": b"1"}, 0)
        group.n += 1
        seen = waited(60)
        assert (seen["event"], "goes on with all of them" in seen["text"]) == ("resumed", True)
        epoch = publish(group.app, group.settings.host_addresses)  # a driver that claims later
        late = waited(1)
        assert f"waits for the driver of epoch {epoch} to claim it" in late["text"]
        group.start(epoch)
        group.n = 0
        assert waited(60)["event"] == "resumed"
        with badly_answered(group, "slow") as hosts:
            slow = StreamResumedTrigger(APP, places, time.time() + 2, env={"HOLDFAST_HOSTS": hosts})
            late = asyncio.run(asyncio.wait_for(first(slow), 30 * SLOWNESS))
            assert (late["event"], "no answer" in late["text"]) == ("timed_out", True)
    finally:
        presence.leave("stopped", "", retry=False)
    until(lambda: not living_drivers(group.app.kafka, APP), 60)


def test_two_restores_are_compared_beside_each_other(group: Group) -> None:
    """Of `restore` and `restore_by_hand`: the second neither waits nor fails."""
    at = group.seen(0)["position"]
    stands = {"epoch": at["epoch"], "n": at["batch_number"]}
    restores = [{"task": f"{APP}/0", "marker": stands}]

    def made() -> ReportRestoreOperator:
        return ReportRestoreOperator(task_id="report", app=APP, restores=restores)

    one, other = Tries(made), Tries(made)
    other.kept = one.kept
    other.context["asset_state_store"] = one.context["asset_state_store"]
    other.ti.dag_id = "by_hand"
    jobs = [tries.execute() for tries in (one, other)]
    assert one.execute().job == jobs[0].job, "a try that follows adopts its own"
    assert jobs[0].job["process"]["id"] != jobs[1].job["process"]["id"]
    for tries, job in zip((one, other), jobs, strict=True):
        event = tries.waited(job)
        assert event["event"] == "ended"
        with pytest.raises(TaskDeferred) as waits:  # for the stream
            tries.resume(event)
        assert waits.value.trigger.kept["verified"]


def test_a_store_that_differs_fails_the_report(group: Group) -> None:
    """The last one: a record that no commit wrote stays in the changelog."""
    producer = group.app.kafka.producer()
    producer.produce(group.app.topic("kv"), b"nobody's", b"stray", partition=0)
    producer.flush()
    group.fill()
    at = group.seen(0)["position"]
    stands = {"epoch": at["epoch"], "n": at["batch_number"]}
    restores = [{"task": f"{APP}/0", "marker": stands}]
    task = Tries(lambda: ReportRestoreOperator(task_id="report", app=APP, restores=restores))
    event = task.waited(task.execute())
    with pytest.raises(AirflowFailException, match=f"kv of task {APP}/0 differs"):
        task.resume(event)
    report = task.xcoms["report"]
    assert (report["verified"], report["tasks"]) == (False, restores)
    assert report["digests"][0]["different"] == ["kv"]
    with pytest.raises(AirflowFailException, match="differs"):
        task.execute()  # a worker that was lost meanwhile: it is not compared once more
