"""Alarms: once for each incident, and once when it is over, whatever starts again meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db
from airflow.sdk import DagRunState
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred
from airflow.sdk.execution_time.context import AssetStateStoreAccessors

from holdfast_airflow.dags.watch import FIRST_SNAPSHOT_S
from holdfast_airflow.notifications import LogNotifier
from holdfast_airflow.operators.watch import AGAIN_S, BLIND_S, WatchConditionOperator
from holdfast_airflow.triggers.condition import ConditionTrigger
from holdfast_airflow.watched import app_asset
from state_lib.checks.condition import CONDITIONS, Condition
from state_lib.checks.conditions import cannot_look
from state_lib.checks.disk import disk_of
from state_lib.checks.facts import HostSeen
from state_lib.config import Settings
from state_lib.host.disk import DiskWatch
from state_lib.kafka import Kafka
from state_lib.stack.ports import free_port
from tests.dags.conftest import Connect
from tests.support import airflow_home
from tests.support.apps import KV, app_of
from tests.support.environment import set_environment
from tests.support.host_process import Hosts
from tests.support.hosts import publish
from tests.support.sensing import first
from tests.support.waiting import SLOWNESS


class Watching:
    """DAGs that watch, hosts that are killed, and what was told to whom."""

    def __init__(self, folder: Path, bag: BundleDagBag) -> None:
        self._folder, self.bag = folder, bag

    def run(self, app: str) -> Any:
        run = self.bag.dags[f"{app}_watch"].test()
        assert run.state == DagRunState.SUCCESS
        return run

    def told(self, file: str) -> list[str]:
        path = self._folder / file
        return path.read_text().splitlines() if path.exists() else []

    def broken(self, file: str, *, now: bool) -> None:
        path = (self._folder / file).with_suffix(".broken")
        path.touch() if now else path.unlink()

    @property
    def operator(self) -> WatchConditionOperator:
        (found,) = self.bag.dags["alarmed_watch"].tasks
        assert isinstance(found, WatchConditionOperator)
        return found


@pytest.fixture
def watching(
    settings: Settings, api: None, connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Watching:
    del settings, api, connect  # what a run needs
    monkeypatch.setenv("SCRIPTED", str(tmp_path))
    folder = airflow_home.SCRIPTED
    bag = BundleDagBag(dag_folder=folder, bundle_path=folder, bundle_name="scripted")
    assert bag.import_errors == {}
    return Watching(tmp_path, bag)


@pytest.fixture
def hosts(
    settings: Settings, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: Any
) -> Iterator[Hosts]:
    app = app_of(Kafka.of(settings), request.param, tmp_path, [KV])
    app.topology = replace(app.topology, sources=())  # a look comes to an end all the same
    app.create()
    made = Hosts(app)
    set_environment(monkeypatch, made.settings)
    try:
        made.start(publish(app))
        made.commit(1, {b"k": b"v"})
        yield made
    finally:
        made.stop()


def this_disk_fills(folder: Path) -> bool:
    """Whether the disk of whoever runs these tests is nearly full: then that is told as well."""
    disk = DiskWatch(folder).to_json()
    seen = HostSeen("host-1", disk_total=disk["total"], disk_free=disk["free"])
    return disk_of(seen).level != "ok"


@pytest.mark.parametrize("hosts", ["attended"], indirect=True)
def test_the_dag_watches_every_condition_and_tells_of_those_that_hold(
    watching: Watching, hosts: Hosts
) -> None:
    """All is well, but its driver is gone, and nobody takes snapshots."""
    run = watching.run("attended")
    tasks = {ti.task_id for ti in run.get_task_instances()}
    assert tasks == {name.replace("-", "_") for name in CONDITIONS}
    told = ["alarm driver-stalled", "alarm snapshot-stale"]
    if this_disk_fills(hosts.app.root):
        told.insert(0, "alarm disk-filling")
    assert sorted(watching.told("told")) == told
    watching.run("attended")
    assert sorted(watching.told("told")) == told, "another run, the same incidents"


@pytest.mark.parametrize("hosts", ["alarmed"], indirect=True)
def test_an_incident_is_told_once_over_runs_and_tries(watching: Watching, hosts: Hosts) -> None:
    watching.run("alarmed")
    assert watching.told("first") == [], "all is well"
    hosts.processes["host-1"].kill()
    hosts.processes["host-1"].wait()
    watching.run("alarmed")
    assert watching.told("first") == watching.told("second") == ["alarm host-1"]
    watching.run("alarmed")
    assert watching.told("first") == ["alarm host-1"]
    hosts.start(hosts.epoch)
    watching.run("alarmed")
    watching.run("alarmed")
    assert watching.told("first") == watching.told("second") == ["alarm host-1", "recovery host-1"]
    hosts.processes["host-1"].kill()
    hosts.processes["host-1"].wait()
    watching.run("alarmed")
    assert watching.told("first")[2:] == ["alarm host-1"], "another incident"
    hosts.start(hosts.epoch)
    watching.run("alarmed")


def down(*hosts: str) -> list[dict[str, Any]]:
    return [
        Condition("host-down", "alarmed", h, "gone", "there", "start it", "hosts").to_json()
        for h in hosts
    ]


@pytest.fixture
def worker(watching: Watching) -> Iterator[Worker]:
    """The task of a run, in a state store that knows the asset, and nothing of incidents."""
    sync_bag_to_db(watching.bag, "scripted", None)
    made = Worker(watching)
    made.forget()
    yield made
    made.forget()


class Worker:
    """Runs the task's methods as a worker does after its trigger has fired."""

    def __init__(self, watching: Watching) -> None:
        self.watching = watching
        asset = app_asset("alarmed")
        self.run = SimpleNamespace(start_date=datetime.now(tz=UTC))
        stores = AssetStateStoreAccessors([asset])
        self.context: Any = {"asset_state_store": stores, "dag_run": self.run}
        self._store = stores[asset]
        self.trigger: ConditionTrigger

    def forget(self) -> None:
        for name in ("host-down", "cannot-look-host-down"):
            self._store.delete(f"incidents-{name}")

    def begins(self) -> list[str]:
        """A try begins; the subjects that its trigger knows."""
        return self._waits(lambda: self.watching.operator.execute(self.context))

    def resumes(
        self, conditions: list[dict[str, Any]], over: list[str], *, failures: int = 0
    ) -> list[str]:
        """Its trigger has fired; the subjects that the next one knows."""
        return self._waits(lambda: self._resume(conditions, over, float("inf"), failures))

    def ends(self, conditions: list[dict[str, Any]], over: list[str]) -> None:
        """Its trigger has fired, and its day is over."""
        self._resume(conditions, over, 0.0, 0)

    def _resume(
        self, conditions: list[dict[str, Any]], over: list[str], ends: float, failures: int
    ) -> None:
        kept = {"ends": ends, "failures": failures}
        event = {"conditions": conditions, "over": over, "until": None, "kept": kept}
        self.watching.operator.resume(self.context, event)

    def _waits(self, work: Callable[[], object]) -> list[str]:
        with pytest.raises(TaskDeferred) as raised:
            work()
        assert isinstance(raised.value.trigger, ConditionTrigger)
        self.trigger = raised.value.trigger
        return self.trigger.known

    def told(self, who: str = "first") -> list[str]:
        return self.watching.told(who)


def test_a_worker_that_dies_after_telling_tells_nothing_twice(worker: Worker) -> None:
    """Airflow hands the same event to another one, or begins another try."""
    assert worker.resumes(down("a"), []) == ["a"]
    assert worker.resumes(down("a"), []) == ["a"]
    assert worker.begins() == ["a"]
    assert worker.told() == ["alarm a"]
    assert worker.resumes([], ["a"]) == []
    assert worker.resumes([], ["a"]) == []
    assert worker.begins() == []
    assert worker.told() == worker.told("second") == ["alarm a", "recovery a"]


def test_what_joins_later_is_told_and_what_is_known_is_not(worker: Worker) -> None:
    worker.resumes(down("a", "b"), [])
    assert worker.resumes(down("c"), ["a"]) == ["b", "c"]
    assert worker.told() == ["alarm a, b", "alarm c", "recovery a"]


def test_a_notifier_that_fails_is_tried_again_and_holds_nobody_up(worker: Worker) -> None:
    worker.watching.broken("first", now=True)
    assert worker.resumes(down("a"), []) == ["a"], "it looks on"
    assert worker.trigger.until is not None
    assert worker.trigger.until < time.time() + AGAIN_S + 1, "and is tried again soon"
    assert worker.resumes(down("b"), []) == ["a", "b"]
    assert worker.begins() == ["a", "b"]
    assert (worker.told("first"), worker.told("second")) == ([], ["alarm a", "alarm b"])
    worker.watching.broken("first", now=False)
    worker.resumes([], [])
    assert worker.trigger.until == float("inf")
    assert worker.told("first") == ["alarm a, b"]
    assert worker.told("second") == ["alarm a", "alarm b"]


def test_a_day_that_ends_while_a_notifier_fails_is_a_failed_run(worker: Worker) -> None:
    """The next one tries it again."""
    worker.watching.broken("first", now=True)
    with pytest.raises(AirflowFailException, match=r"1 of 2 notifiers failed.*0-FileNotifier"):
        worker.ends(down("a"), [])
    worker.watching.broken("first", now=False)
    assert worker.begins() == ["a"]
    assert worker.told("first") == worker.told("second") == ["alarm a"]


def test_who_was_never_told_of_a_beginning_is_not_told_of_an_end(worker: Worker) -> None:
    worker.watching.broken("first", now=True)
    worker.resumes(down("a"), [])
    worker.watching.broken("first", now=False)
    worker.resumes([], ["a"])
    assert (worker.told("first"), worker.told("second")) == ([], ["alarm a", "recovery a"])


def test_an_incident_whose_end_nobody_was_told_goes_on(worker: Worker) -> None:
    worker.resumes(down("a"), [])
    for who in ("first", "second"):
        worker.watching.broken(who, now=True)
    worker.resumes([], ["a"])
    for who in ("first", "second"):
        worker.watching.broken(who, now=False)
    worker.resumes(down("a"), [])
    assert worker.told() == ["alarm a"]


def test_who_was_told_of_an_end_is_told_of_what_follows(worker: Worker) -> None:
    worker.resumes(down("a"), [])
    worker.watching.broken("second", now=True)
    worker.resumes([], ["a"])
    worker.watching.broken("second", now=False)
    worker.resumes(down("a"), [])
    assert worker.told("first") == ["alarm a", "recovery a", "alarm a"]
    assert worker.told("second") == ["alarm a"], "to whom it is the same"
    worker.resumes([], ["a"])
    assert worker.told("first")[3:] == ["recovery a"]
    assert worker.told("second") == ["alarm a", "recovery a"]


def test_who_is_added_is_told_of_what_goes_on_and_nobody_else_is(worker: Worker) -> None:
    worker.resumes(down("a"), [])
    operator = worker.watching.operator
    kind: Any = type(operator.notifiers[0])
    operator.notifiers = [LogNotifier(), *operator.notifiers, kind("third")]
    worker.resumes([], [])
    assert worker.told("third") == ["alarm a"]
    assert worker.told("first") == worker.told("second") == ["alarm a"]


def test_while_it_fails_looks_get_longer_so_that_what_must_hold_for_long_alarms(
    worker: Worker,
) -> None:
    worker.watching.broken("first", now=True)
    pauses = []
    for failures in range(10):
        worker.resumes(down("a"), [], failures=failures)
        assert worker.trigger.until is not None
        pauses.append(round(worker.trigger.until - time.time()))
    assert pauses == sorted(pauses)
    assert pauses[0] == AGAIN_S
    assert FIRST_SNAPSHOT_S + 900 < pauses[-1] < 3 * 3600


def test_what_a_person_must_correct_is_looked_at_again(worker: Worker) -> None:
    """Else nothing would be seen of it for the rest of the run's day."""
    operator = worker.watching.operator
    operator.env = {"HOLDFAST_HOSTS": "nonsense"}
    with pytest.raises(AirflowException, match="hosts") as wrong:
        operator.execute(worker.context)
    assert not isinstance(wrong.value, AirflowFailException), "which no retry follows"
    operator.env = {}
    assert worker.begins() == []


def test_that_nobody_can_look_is_an_incident_of_its_own(worker: Worker) -> None:
    blind = cannot_look("alarmed", "host-down", "every host refuses the token").to_json()
    assert worker.resumes([*down("a"), blind], []) == ["a", "host-down"]
    assert worker.trigger.blind_s == BLIND_S
    assert worker.resumes([], ["host-down"]) == ["a"]
    assert worker.told() == ["alarm a", "alarm host-down", "recovery host-down"]


def nobody() -> dict[str, str]:
    """Settings by which the only host is down, whatever other tests run."""
    return {"HOLDFAST_HOSTS": f"host-1=127.0.0.1:{free_port()}/{free_port()}"}


def test_a_watch_ends_when_its_day_is_over(worker: Worker) -> None:
    worker.begins()
    assert worker.trigger.until is not None
    assert worker.trigger.until > time.time()
    worker.trigger.until, worker.trigger.known = 0.0, ["host-1"]
    worker.trigger.env = nobody()
    event = asyncio.run(asyncio.wait_for(first(worker.trigger), 60 * SLOWNESS))
    assert (event["conditions"], event["over"]) == ([], [])
    assert event["kept"] == {"ends": pytest.approx(time.time(), abs=60 * SLOWNESS), "failures": 0}
    worker.ends([], [])  # and does not defer


def test_what_began_to_hold_before_its_end_is_told(worker: Worker) -> None:
    """Not for long enough at the first look; but by one that came late it would not be told."""
    worker.begins()
    worker.trigger.until, worker.trigger.env = 0.0, nobody()
    event = asyncio.run(asyncio.wait_for(first(worker.trigger), 60 * SLOWNESS))
    assert [c["subject"] for c in event["conditions"]] == ["host-1"]


def test_a_later_try_ends_with_its_run(worker: Worker) -> None:
    """The other conditions are looked for by the next run, which waits for the end of this one."""
    worker.watching.operator.lasts = timedelta(days=1)
    worker.run.start_date -= timedelta(hours=23)
    worker.begins()
    end = worker.run.start_date + timedelta(days=1)
    assert worker.trigger.until == pytest.approx(end.timestamp(), abs=1)
