"""The DAG files as a whole."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.sdk import DAG
from airflow.sdk.exceptions import ParamValidationError

from holdfast_airflow.dags import (
    audit_dag,
    capacity_dag,
    drill_dag,
    repair_dag,
    restore_by_hand_dag,
    restore_dag,
    verify_dag,
    watch_dag,
)
from holdfast_airflow.notifications import LogNotifier
from holdfast_airflow.notifications.outcome import note_why
from holdfast_airflow.operators.approval import ApproveOnceOperator
from holdfast_airflow.operators.restore import ApproveRestoreOperator, RestoreOperator
from holdfast_airflow.operators.tell import TellOutcomeOperator
from holdfast_airflow.operators.watch import WatchConditionOperator
from state_lib.checks.condition import OF_RUNS
from tests.support.airflow_home import ROOT
from tests.support.waiting import SLOWNESS

IDS = (
    "flights_audit",
    "flights_capacity",
    "flights_drill",
    "flights_load",
    "flights_prune",
    "flights_repair",
    "flights_restore",
    "flights_restore_by_hand",
    "flights_savepoint",
    "flights_snapshots",
    "flights_stream",
    "flights_verify",
    "flights_verify_snapshots",
    "flights_watch",
    "word_count_audit",
    "word_count_capacity",
    "word_count_drill",
    "word_count_prune",
    "word_count_repair",
    "word_count_restore",
    "word_count_restore_by_hand",
    "word_count_savepoint",
    "word_count_snapshots",
    "word_count_stream",
    "word_count_verify",
    "word_count_verify_snapshots",
    "word_count_watch",
)
TASKS = {
    "hand": ("plan", "plan_past", "approve", "restore", "go_back", "report"),
    "repair": (
        "plan",
        "approve",
        "apply",
        "find_lost",
        "approve_lost",
        "repair_lost",
        "verify",
    ),
    "restore": ("watch", "plan", "approve", "restore", "report"),
    "watch": (
        "host_down",
        "task_without_owner",
        "driver_stalled",
        "changelog_unsafe",
        "compaction_stuck",
        "store_lost",
        "snapshot_stale",
        "disk_filling",
    ),
}
"""Of DAGs that have several."""
HEAVY = ("pyspark", "confluent_kafka", "rocksdict", "pandas", "pyarrow", "fastapi", "requests")
PARSE = """
import os, runpy, sys, time
import airflow.sdk, airflow.triggers.base
for path in sys.argv[2:]:
    sys.stdout.flush()
    if not os.fork():
        began = time.process_time()
        runpy.run_path(path)
        took = time.process_time() - began
        heavy = [name for name in sys.argv[1].split(",") if name in sys.modules]
        print(f"{took:.3f} {','.join(heavy)}", flush=True)
        os._exit(0)
    os.wait()
"""
"""As Airflow: what one file has imported is no help to the next."""
TOGETHER = """
import runpy, sys, time
import airflow.sdk, airflow.triggers.base
began = time.process_time()
for path in sys.argv[1:]:
    runpy.run_path(path)
print(time.process_time() - began)
"""
"""As a bag: what `airflow dags list` or `reserialize` does."""
ALL_S = 1.0
BARE = """
from airflow.sdk import DAG, BaseOperator
with DAG("bare", schedule=None):
    BaseOperator(task_id="bare")
"""


@pytest.fixture(params=IDS)
def dag(request: pytest.FixtureRequest, bag: BundleDagBag) -> DAG:
    return bag.dags[request.param]


def test_the_whole_bag_imports(bag: BundleDagBag) -> None:
    assert bag.import_errors == {}
    assert set(IDS) <= set(bag.dags)


def test_one_thin_file_per_dag(bag: BundleDagBag) -> None:
    for dag_id, dag in bag.dags.items():
        assert Path(dag.fileloc).name == f"{dag_id}.py"
        assert len(Path(dag.fileloc).read_text().splitlines()) < 15


def test_parsing_is_cheap_and_imports_no_engine(tmp_path: Path) -> None:
    """Airflow parses every file every minute; beside one that is Airflow's alone, in CPU time."""
    bare = tmp_path / "bare.py"
    bare.write_text(BARE)
    files = dag_files()
    run = [sys.executable, "-c", PARSE, ",".join(HEAVY), *[str(bare)] * len(files), *files]
    told = [line.split(" ") for line in subprocess.check_output(run, text=True).splitlines()]
    assert {heavy for _, heavy in told} == {""}
    took = [float(seconds) for seconds, _ in told]
    assert len(took) == 2 * len(files)
    assert sum(took[len(files) :]) < 2.5 * sum(took[: len(files)])


def test_all_files_take_less_than_a_second() -> None:
    """CPU time, without the imports of Airflow itself."""
    run = [sys.executable, "-c", TOGETHER, *dag_files()]
    assert float(subprocess.check_output(run, text=True)) < ALL_S * SLOWNESS


def dag_files() -> list[str]:
    return sorted(str(path) for path in (ROOT / "dags").glob("*.py"))


def test_dags_say_what_they_are(dag: DAG) -> None:
    assert dag.doc_md
    assert dag.description
    assert "holdfast" in dag.tags
    assert dag.max_active_runs == 1
    assert not dag.catchup
    several = set(TASKS.get(dag.dag_id.rpartition("_")[2], ()))
    if dag.dag_id == "word_count_watch":  # on the hosts of flights: they would be told of twice
        several -= {"host_down", "disk_filling"}
    assert len(dag.tasks) == 1 or set(dag.task_ids) == several


def test_no_run_follows_another_without_a_pause(dag: DAG) -> None:
    """What fails at once would else fail thousands of times a day."""
    assert str(dag.schedule) != "@continuous"
    assert not isinstance(dag.schedule, timedelta) or dag.schedule >= timedelta(minutes=1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"tasks": [-1]},
        {"tasks": "0"},
        {"source": "disk"},
        {"source": "2026-01-31"},
        {"to": "yesterday"},
        {"republish": "no"},
    ],
)
def test_parameters_of_a_restore_by_hand_are_checked(
    bag: BundleDagBag, wrong: dict[str, object]
) -> None:
    params = deepcopy(bag.dags["flights_restore_by_hand"].params)
    nothing = {"tasks": None, "source": None, "to": None, "republish": False}
    assert params.validate() == nothing
    for given in (
        {"tasks": [0, 2], "source": "snapshot"},
        {"source": "20260131T120000000Z-1a2b3c4d"},
        {"to": "2026-01-31T12:00:00Z", "republish": True},
    ):
        params.update(given)
        assert params.validate() == {**nothing, **given}
        params.update(nothing)
    with pytest.raises(ParamValidationError):
        params.update(wrong)


def test_what_a_person_begins_is_not_scheduled_and_asks_always(bag: BundleDagBag) -> None:
    for name in ("restore_by_hand", "savepoint", "verify_snapshots", "repair"):
        assert bag.dags[f"flights_{name}"].schedule is None
    dag = bag.dags["flights_restore_by_hand"]
    approve = dag.get_task("approve")
    assert isinstance(approve, ApproveRestoreOperator)
    assert approve.always
    assert (approve.defaults, approve.retries) == (None, 0)
    for task in ("restore", "go_back"):
        assert "approve" in dag.get_task(task).upstream_task_ids


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"limit": "many"}, {"rate": 0}, {"rate": -1}])
def test_parameters_of_a_load_are_checked(bag: BundleDagBag, wrong: dict[str, object]) -> None:
    params = deepcopy(bag.dags["flights_load"].params)
    params.update({"limit": 10, "rate": 2.5})
    assert params.validate() == {"limit": 10, "rate": 2.5}
    with pytest.raises(ParamValidationError):
        params.update(wrong)


@pytest.mark.parametrize("wrong", [{"conn_id": ""}, {"max_restarts": -1}, {"max_restarts": None}])
def test_parameters_of_a_stream_are_checked(bag: BundleDagBag, wrong: dict[str, object]) -> None:
    params = deepcopy(bag.dags["flights_stream"].params)
    assert params.validate() == {"conn_id": "spark_default", "max_restarts": 8}
    with pytest.raises(ParamValidationError):
        params.update(wrong)


def test_a_stream_has_one_supervisor_at_a_time(bag: BundleDagBag) -> None:
    task = bag.dags["flights_stream"].get_task("supervise")
    assert task.max_active_tis_per_dag == 1
    assert [asset.uri for asset in task.inlets] == ["holdfast://app/flights"]
    assert task.outlets == []  # the end of a stream is no news for those who wait for data


@pytest.mark.parametrize("name", ["verify", "prune", "capacity"])
def test_a_worker_that_hangs_does_not_keep_later_runs_from_beginning(
    bag: BundleDagBag, name: str
) -> None:
    """They work in a worker and not in the triggerer, and there is one run at a time."""
    dag = bag.dags[f"flights_{name}"]
    assert dag.dagrun_timeout is not None
    assert timedelta(hours=1) <= dag.dagrun_timeout <= timedelta(hours=6)


@pytest.mark.parametrize("app", ["flights", "word_count"])
def test_light_work_runs_as_often_as_is_promised(bag: BundleDagBag, app: str) -> None:
    often = {
        "verify": timedelta(minutes=15),
        "snapshots": timedelta(hours=1),
        "prune": timedelta(days=1),
    }
    assert {name: bag.dags[f"{app}_{name}"].schedule for name in often} == often


def test_heavy_daily_work_runs_one_after_the_other(bag: BundleDagBag) -> None:
    heavy = [
        d for i, d in bag.dags.items() if i.rpartition("_")[2] in ("audit", "drill", "capacity")
    ]
    crons = [str(dag.schedule).split() for dag in heavy]
    assert {tuple(cron[2:]) for cron in crons} == {("*", "*", "*")}
    minutes = sorted(60 * int(hour) + int(minute) for minute, hour, *_ in crons)
    assert len(minutes) == 6
    assert 60 <= minutes[0] < minutes[-1] < 300
    assert all(later - one >= 20 for one, later in pairwise(minutes))


TELLING: tuple[Callable[..., DAG], ...] = (
    audit_dag,
    capacity_dag,
    drill_dag,
    restore_by_hand_dag,
    restore_dag,
    verify_dag,
)


@pytest.mark.parametrize("make", TELLING, ids=lambda make: make.__name__)
def test_who_is_to_be_told_is_told_however_a_run_ends(make: Callable[..., DAG]) -> None:
    """By a teardown: it runs always, and does not make a run that failed succeed."""
    silent, dag = make("app"), make("app", notifiers=[LogNotifier()])
    assert set(dag.task_ids) - set(silent.task_ids) == {"tell"}
    tell = dag.get_task("tell")
    assert isinstance(tell, TellOutcomeOperator)
    assert tell.is_teardown
    assert not tell.on_failure_fail_dagrun
    assert [asset.uri for asset in tell.inlets] == ["holdfast://app/app"]
    assert tell.condition in OF_RUNS
    assert set(tell.over_when) <= set(silent.task_ids)
    last = [task.task_id for task in silent.tasks if not task.downstream_task_ids]
    assert tell.upstream_task_ids == set(last)
    for task in dag.tasks:
        called: Any = task.on_failure_callback
        assert (note_why in called) != (task is tell)


@pytest.mark.parametrize("make", [repair_dag, restore_by_hand_dag, restore_dag])
def test_who_is_to_be_told_hears_that_a_person_is_waited_for(make: Callable[..., DAG]) -> None:
    dag = make("app", notifiers=[LogNotifier()])
    asking = [t for t in dag.tasks if isinstance(t, (ApproveOnceOperator, RestoreOperator))]
    assert len(asking) == 2
    for task in asking:
        assert [asset.uri for asset in task.inlets] == ["holdfast://app/app"]


def test_hosts_are_watched_for_one_of_the_applications_on_them() -> None:
    """A host that is down would else be told of once for each."""
    both, one = watch_dag("first"), watch_dag("second", hosts=False)
    assert set(both.task_ids) - set(one.task_ids) == {"host_down", "disk_filling"}


def test_manifests_are_not_read_every_minute_and_a_snapshot_ends_the_alarm(
    bag: BundleDagBag,
) -> None:
    """There are dozens for each task, and an alarm is for an age of a day."""
    task = bag.dags["flights_watch"].get_task("snapshot_stale")
    assert isinstance(task, WatchConditionOperator)
    assert task.poke_interval >= 600
    assert task.calm_s is not None
    assert task.calm_s < 600 < task.hold_s, "but an application that is new has some time"


def test_logs_are_not_read_every_minute(bag: BundleDagBag) -> None:
    task = bag.dags["flights_watch"].get_task("compaction_stuck")
    assert isinstance(task, WatchConditionOperator)
    assert task.poke_interval >= 600


@pytest.mark.parametrize("module", ["pyspark.sql", "pandas", "state_lib.kafka"])
def test_lint_refuses_an_engine_at_the_top_of_a_dag_file(module: str) -> None:
    run = ["ruff", "check", "--stdin-filename", str(ROOT / "dags" / "new.py"), "-"]
    code = f"import {module}\n"
    found = subprocess.run(run, input=code, capture_output=True, text=True, check=False)
    assert "TID253" in found.stdout
