"""Restores that nobody needs, on real hosts: equal, different, impossible, interrupted."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import psutil
import pytest
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.sdk import DagRunState
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from holdfast_airflow.dags import drill_dag
from holdfast_airflow.jobs import Job
from holdfast_airflow.operators.drill import RestoreDrillOperator
from holdfast_airflow.triggers.job import JobTrigger
from state_lib import processes
from state_lib.client.flight import FlightHostClient
from state_lib.config import Settings
from state_lib.digests.drill_job import drill_app
from state_lib.drivers.identity import ID_VARIABLE
from state_lib.errors import Busy, NotFound
from state_lib.reports.folder import Reports
from state_lib.restore.lock import restore_lock
from state_lib.stack.ports import free_port
from tests.support import airflow_home
from tests.support.command import holdfast
from tests.support.committed import PARTITIONS, Committed
from tests.support.tries import Tries
from tests.support.waiting import until

Run = Callable[[str], tuple[Any, Any]]


@pytest.fixture
def committed(settings: Settings, hosts: None, tmp_path: Path) -> Callable[[str], Committed]:
    del hosts  # they must run
    return lambda name: Committed(settings, name, tmp_path)


@pytest.fixture
def run(bag: BundleDagBag, api: None) -> Run:
    """A DAG to its end: how the run ended, and its task."""
    del bag, api  # its bundles are where `dag.test` looks
    folder = airflow_home.SCRIPTED
    scripted = BundleDagBag(dag_folder=folder, bundle_path=folder, bundle_name="scripted")

    def run(dag: str) -> tuple[Any, Any]:
        found = scripted.dags[dag].test()
        return found.state, found.get_task_instance("drill")

    return run


def filled(app: Committed) -> Committed:
    """Some entries, a snapshot, and a tail."""
    for p in range(PARTITIONS):
        app.commit(p, a="1", b="2")
        app.commit(p, b="3")
    app.snapshot()
    for p in range(PARTITIONS):
        app.commit(p, c="4")
    return app


def report_of(ti: Any) -> Any:
    return ti.xcom_pull("drill", key="report")


def test_a_restore_aside_gives_the_live_state_and_its_rates(
    committed: Callable[[str], Committed], settings: Settings, run: Run
) -> None:
    filled(committed("drilled"))
    state, ti = run("drilled_drill")
    assert state == DagRunState.SUCCESS
    found = ti.xcom_pull("drill")
    assert (found["equal"], found["alarms"], found["failed"], found["absent"]) == (True, [], [], [])
    assert found["records"] == PARTITIONS  # the tails
    assert found["fetched_bytes"] > 0
    for task in found["tasks"]:
        assert (task["looks"], task["records"], task["error"]) == (1, 1, None)
        assert 0 < task["fetch_s"] + task["replay_s"] <= task["seconds"] < found["seconds"] + 0.01
        assert task["records_per_s"] > 0
    assert list((settings.home / "drills").iterdir()) == []
    kept = orjson.loads(Path(report_of(ti)["url"].removeprefix("file://")).read_bytes())
    digests = [task["digests"]["kv"] for task in kept["result"]["tasks"]]
    assert [one.partition("/")[2] for one in digests] == ["3"] * PARTITIONS
    by_hand = orjson.loads(holdfast("drill", "drilled", "--json"))
    assert (by_hand["equal"], by_hand["records"]) == (True, PARTITIONS)


def test_a_store_that_is_not_what_a_restore_gives_is_an_alarm(
    committed: Callable[[str], Committed], run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    app = filled(committed("diverged"))
    app.write_behind(1, "b", "wrong")
    app.commit(1, d="5")
    state, ti = run("diverged_drill")
    assert state == DagRunState.FAILED
    found = report_of(ti)
    assert (found["equal"], found["alarms"], found["failed"]) == (False, [1], [])
    assert [task["different"] for task in found["tasks"]] == [[], ["kv"]]
    assert found["tasks"][1]["looks"] == 2
    said = capsys.readouterr().out
    assert "ALARM: kv of task diverged/1" in said
    assert "'holdfast digest diverged --against changelog'" in said


def test_without_any_snapshot_it_is_skipped(
    committed: Callable[[str], Committed], run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    app = committed("unsaved")
    app.commit(0, a="1")
    state, ti = run("unsaved_drill")
    assert (state, ti.state) == (DagRunState.SUCCESS, "skipped")
    assert "'holdfast snapshot create unsaved'" in capsys.readouterr().out
    assert report_of(ti)["absent"] == [0, 1]
    assert "'holdfast snapshot create unsaved'" in holdfast("drill", "unsaved", code=1)


def test_a_host_that_knows_nothing_is_no_missing_snapshot(
    committed: Callable[[str], Committed],
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its disk is new: a drill that is skipped for that would be green."""
    filled(committed("wiped_drill"))

    def unknown(*_: object) -> None:
        raise NotFound("there is no application 'wiped_drill' here; there are: []", known=[])

    monkeypatch.setattr(FlightHostClient, "marker", unknown)
    found = drill_app(settings, "wiped_drill", tmp_path)
    assert (len(found.failed), found.absent) == (PARTITIONS, [])


def test_a_snapshot_that_cannot_be_restored_fails(
    committed: Callable[[str], Committed], run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    app = filled(committed("broken"))
    for file in app.snapshots():
        file.write_bytes(bytes(file.stat().st_size))  # of the same size: only its hash tells
    state, ti = run("broken_drill")
    assert state == DagRunState.FAILED
    assert report_of(ti)["failed"] == [0, 1]
    said = capsys.readouterr().out
    assert "SHA-256" in said
    assert "'holdfast snapshot create broken'" in said
    app.snapshot()  # as it says
    state, ti = run("broken_drill")
    assert (state, ti.xcom_pull("drill")["equal"]) == (DagRunState.SUCCESS, True)
    for file in app.snapshots():
        file.unlink()
    state, ti = run("broken_drill")
    assert state == DagRunState.FAILED, "a snapshot that is not whole is not none"
    assert "is missing" in capsys.readouterr().out


@pytest.mark.usefixtures("settings")
def test_an_application_that_has_not_run_is_skipped(run: Run) -> None:
    (operator,) = drill_dag("someone_s").tasks
    assert isinstance(operator, RestoreDrillOperator)
    assert operator.skip_unknown
    state, ti = run("nobody_drill")
    assert (state, ti.state) == (DagRunState.SUCCESS, "skipped")


@pytest.fixture
def tries(settings: Settings, api: None) -> Callable[[str], Tries]:
    del settings, api
    return lambda app: Tries(lambda: RestoreDrillOperator(task_id="drill", app=app))


def test_a_retry_drills_again_where_hosts_were_away(
    committed: Callable[[str], Committed], api: None
) -> None:
    """Their errors are in the report, which is no answer to what the retry asks."""
    del api
    filled(committed("away_drill"))
    nobody = ",".join(f"host-{i}=127.0.0.1:{free_port()}/{free_port()}" for i in (1, 2))
    env = {"HOLDFAST_HOSTS": nobody}
    task = Tries(lambda: RestoreDrillOperator(task_id="drill", app="away_drill", env=dict(env)))
    trigger = task.execute()
    event = task.waited(trigger)
    assert event["event"] == "ended"
    with pytest.raises(AirflowException, match="2 of 2 tasks of away_drill could not") as raised:
        task.resume(event)
    assert not isinstance(raised.value, AirflowFailException)
    env.clear()
    again = task.execute()
    assert Job.from_json(again.job).id != Job.from_json(trigger.job).id
    assert task.resume(task.waited(again))["equal"]


def frozen(trigger: JobTrigger) -> psutil.Process:
    """Its job, stopped for now."""
    job = Job.from_json(trigger.job)
    (process,) = until(lambda: processes.marked(ID_VARIABLE, job.id), 30, "seen")
    process.suspend()
    return process


def test_a_lost_worker_is_followed_by_one_that_adopts_and_nothing_is_done_twice(
    committed: Callable[[str], Committed], settings: Settings, tries: Callable[[str], Tries]
) -> None:
    app, task = filled(committed("adopted_drill")), tries("adopted_drill")
    trigger = task.execute()
    process = frozen(trigger)
    again = task.execute()  # the worker was lost
    assert again.job == trigger.job
    process.resume()
    event = task.waited(again)  # the triggerer as well
    assert event["event"] == "ended"
    done = task.execute()  # and the next worker, before it told
    assert done["equal"]
    assert task.resume(event) == done
    assert len(Reports.of(settings, app.name, "drill").ids()) == 1
    trigger = task.execute(cleared=True)  # a user wants another one
    assert task.resume(task.waited(trigger))["equal"]
    assert len(Reports.of(settings, app.name, "drill").ids()) == 2


def test_what_a_killed_drill_leaves_is_removed_by_the_next(
    committed: Callable[[str], Committed], settings: Settings, tries: Callable[[str], Tries]
) -> None:
    filled(committed("killed_drill"))
    task = tries("killed_drill")
    trigger = task.execute()
    process = frozen(trigger)
    left = settings.home / "drills" / "holdfast-drill-killed_drill" / "holdfast-of-before"
    left.mkdir(parents=True, exist_ok=True)
    process.kill()
    event = task.waited(trigger)
    assert event["event"] == "died"
    with pytest.raises(AirflowException, match="ended without a word") as died:
        task.resume(event)
    assert not isinstance(died.value, AirflowFailException)
    again = task.execute()
    assert again.job != trigger.job
    assert task.resume(task.waited(again))["equal"]
    assert list((settings.home / "drills").iterdir()) == []


def test_what_a_user_does_to_the_task_ends_the_job(
    committed: Callable[[str], Committed],
    tries: Callable[[str], Tries],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    filled(committed("ended_drill"))
    task = tries("ended_drill")
    trigger = task.execute()
    process = frozen(trigger)
    states = SimpleNamespace(get_task_states=lambda **_: {"run": {"task": "deferred"}})
    runner = "airflow.sdk.execution_time.task_runner.RuntimeTaskInstance"
    monkeypatch.setattr(JobTrigger, "task_instance", task.ti, raising=False)
    monkeypatch.setattr(runner, states)
    asyncio.run(trigger.on_kill())
    assert process.is_running(), "another triggerer has it now"
    process.resume()
    states.get_task_states = lambda **_: {"run": {"task": "failed"}}
    asyncio.run(trigger.on_kill())
    until(lambda: not processes.marked(ID_VARIABLE, Job.from_json(trigger.job).id), 30, "gone")
    other = task.execute()
    assert other.job != trigger.job
    task.operator.on_kill()  # killed before it waits
    assert processes.marked(ID_VARIABLE, Job.from_json(other.job).id) == []


def test_a_cleared_task_ends_a_job_that_nobody_has_ended(
    committed: Callable[[str], Committed], tries: Callable[[str], Tries]
) -> None:
    """Its trigger was away when the user cleared it."""
    filled(committed("cleared_drill"))
    task = tries("cleared_drill")
    trigger = task.execute()
    frozen(trigger)
    again = task.execute(cleared=True)
    assert Job.from_json(again.job).id != Job.from_json(trigger.job).id
    assert processes.marked(ID_VARIABLE, Job.from_json(trigger.job).id) == []
    assert task.resume(task.waited(again))["equal"]


def test_one_that_takes_too_long_is_ended(
    committed: Callable[[str], Committed], tries: Callable[[str], Tries]
) -> None:
    filled(committed("slow_drill"))
    task = tries("slow_drill")
    trigger = task.execute()
    process = frozen(trigger)
    # A process that is stopped takes the signal when it goes on.
    threading.Timer(1.0, process.resume).start()
    event = task.waited(JobTrigger(trigger.job, until=0.0))
    assert event["event"] == "timed_out"
    assert processes.marked(ID_VARIABLE, Job.from_json(trigger.job).id) == []
    with pytest.raises(AirflowException, match="patience"):
        task.resume(event)


def test_never_two_in_one_folder(
    committed: Callable[[str], Committed], settings: Settings, tmp_path: Path
) -> None:
    committed("one_drill")
    work = tmp_path / "holdfast-drill-one_drill"
    with restore_lock(work), pytest.raises(Busy, match="a drill of 'one_drill' is running"):
        drill_app(settings, "one_drill", tmp_path)
    assert drill_app(settings, "one_drill", tmp_path).absent
