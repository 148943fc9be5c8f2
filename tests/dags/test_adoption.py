"""Which driver is adopted, and what the operator does where none can be started."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred

from holdfast_airflow.adoption import _stranger, find_driver, same_job
from holdfast_airflow.operators.stream import SuperviseStreamOperator
from holdfast_airflow.watched import app_asset
from state_lib.changelog.topics import topology_topic
from state_lib.drivers.control import ask_to_stop
from state_lib.drivers.process import DriverProcess, launch
from state_lib.drivers.requests import Requests
from state_lib.drivers.sight import DriverFacts, Sight
from state_lib.drivers.supervision import Supervision
from state_lib.errors import ConfigurationError
from state_lib.kafka import describe
from state_lib.protocol.marker import now_ms
from state_lib.stack.paths import Paths
from tests.dags.conftest import Connect, Scripts
from tests.support.airflow_home import SCRIPTED
from tests.support.waiting import until

JOB = str(SCRIPTED / "job.py")
LOG: Any = structlog.get_logger("task")


class Task:
    """A try of a supervising task, as far as its operator asks for it."""

    def __init__(self, app: str, **operator: Any) -> None:
        self._operator = {"app": app, "application": JOB, "conn_id": "scripted", **operator}
        self._made = self._make()
        store = SimpleNamespace(**(kept := dict[str, Any]()))
        self._app, self.kept, store.get = app, kept, kept.get
        store.set = kept.__setitem__
        self.store = store
        self.ti = SimpleNamespace(
            dag_id="dag", run_id="run", task_id="supervise", try_number=1, max_tries=10
        )
        self._context: Any = {"ti": self.ti, "asset_state_store": defaultdict(lambda: store)}
        assert self._context["asset_state_store"][app_asset(app)] is store

    def _make(self) -> SuperviseStreamOperator:
        return SuperviseStreamOperator(task_id="supervise", **self._operator)

    def kill(self) -> None:
        """As Airflow does when a user has marked the task."""
        self._made.on_kill()

    def execute(self) -> Any:
        """What a try comes to: a trigger, if the task waits."""
        try:
            return self._made.execute(self._context)
        except TaskDeferred as deferred:
            return deferred.trigger

    def again(self, *, cleared: bool = False) -> Any:
        """The next try, in a process of its own."""
        self._made = self._make()
        self.ti.try_number += 1
        self.ti.max_tries += int(cleared)
        return self.execute()

    def restart(self, supervision: Supervision) -> Any:
        """What follows from ``restart``: a trigger, if the task waits again."""
        event = {"event": "restart", "text": "a test", "supervision": supervision.to_json()}
        try:
            return self._made.resume(self._context, event)
        except TaskDeferred as deferred:
            return deferred.trigger


def test_a_stranger_without_a_launchers_mark_is_known_by_kafka_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "input()"]
    by_hand = subprocess.Popen(command, stdin=subprocess.PIPE)
    launched = launch("app", ["/bin/sleep", "60"], env=os.environ, log=tmp_path / "log")
    try:
        for driver, pid, lives in (
            ("theirs", by_hand.pid, None),
            (launched.id, launched.pid, True),
        ):
            facts = DriverFacts(driver, socket.gethostname(), pid, "", 7, now_ms())
            sight = Sight(at=0, drivers=(driver,), epoch=7, driver=driver, facts=facts)
            found = _stranger("app", None, sight)
            assert found is not None
            assert found.id == driver
            assert found.alive() is lives
    finally:
        by_hand.communicate(b"\n")
        launched.end(0)


def test_a_driver_that_has_said_its_last_words_is_ended_and_not_adopted(
    scripts: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("state_lib.drivers.living.DYING_S", 1.0)
    scripts.says("hangs_on", "hang")
    process = scripts.launch("hangs_on")
    scripts.commits("hangs_on")
    ask_to_stop(scripts.kafka, "hangs_on", why="a test")
    scripts.sight("hangs_on", lambda s: s.end_of(process.id) is not None)
    assert process.alive()
    assert find_driver(scripts.settings, "hangs_on", process, JOB, LOG).process is None
    assert process.alive() is False


@pytest.mark.parametrize(("host", "lives"), [("", False), ("elsewhere", True)])
def test_whoever_is_known_by_kafka_alone_has_joined_and_is_gone_when_it_is_not_there(
    scripts: Scripts, host: str, lives: bool
) -> None:
    """One that was launched on another machine may be starting."""
    known = DriverProcess("known", "joined_once", host, 0, "", now_ms())
    found = find_driver(scripts.settings, "joined_once", known, JOB, LOG)
    assert found.process == (known if lives else None)


def test_a_job_of_the_same_name_in_another_folder_is_another_job(
    scripts: Scripts, tmp_path: Path
) -> None:
    scripts.says("namesakes", "run")
    theirs = tmp_path / "job.py"
    shutil.copy(JOB, theirs)
    driver = scripts.launch("namesakes", theirs)
    scripts.commits("namesakes")
    with pytest.raises(ConfigurationError, match=f"run by another job: {theirs} of user"):
        find_driver(scripts.settings, "namesakes", None, JOB, LOG)
    found = find_driver(scripts.settings, "namesakes", None, str(theirs), LOG)
    assert found.process is not None
    assert found.process.id == driver.id


def test_whose_job_it_is_on_another_machine(tmp_path: Path) -> None:
    """There a path may differ, and the user tells."""

    def facts(file: str, user: str) -> DriverFacts:
        return DriverFacts("id", "elsewhere", 1, "", 7, 0, file=file, user=user)

    ours = str(tmp_path / "flights.py")
    assert same_job(facts(ours, "them"), ours, user="us")
    assert same_job(facts("/container/flights.py", "us"), ours, user="us")
    assert not same_job(facts("/container/flights.py", "them"), ours, user="us")
    assert not same_job(facts("/container/trains.py", "us"), ours, user="us")
    assert same_job(facts("/container/flights.py", "us"), "s3a://jobs/flights.py", user="us")
    assert same_job(facts("", ""), ours, user="us"), "an older version does not say"


def test_a_driver_of_another_job_fails_the_task_at_a_restart(
    scripts: Scripts, tmp_path: Path
) -> None:
    scripts.says("intruded", "run")
    theirs = tmp_path / "of_another_team.py"
    shutil.copy(JOB, theirs)
    scripts.launch("intruded", theirs)
    scripts.commits("intruded")
    task = Task("intruded")
    gone = DriverProcess("gone", "intruded", "elsewhere", 1, "", 0)
    task.kept["driver"] = gone.to_json()
    with pytest.raises(AirflowFailException, match="run by another job"):
        task.restart(Supervision("intruded", "gone", 0))


def test_a_task_that_was_killed_while_it_looked_launches_nothing(scripts: Scripts) -> None:
    task = Task("killed_early")
    task.kill()
    with pytest.raises(AirflowException, match="killed before its driver was launched"):
        task.restart(Supervision("killed_early", "gone", 0))
    assert "driver" not in task.kept
    assert not Paths(scripts.settings.home).log("killed_early").exists()


@pytest.mark.parametrize("wrong", ["many", "None", -1])
def test_restarts_that_are_no_number_are_refused_before_anything_is_launched(
    scripts: Scripts, wrong: int | str
) -> None:
    scripts.says("uncounted", "run")
    task = Task("uncounted", max_restarts=wrong)
    with pytest.raises(AirflowFailException, match=f"max_restarts .*'uncounted' is {wrong!r}"):
        task.execute()
    assert task.kept == {}
    assert not Paths(scripts.settings.home).log("uncounted").exists()


@pytest.mark.parametrize("since", [True, False])
def test_a_stop_while_none_was_supervised_is_meant_for_the_driver_that_is_found(
    scripts: Scripts, since: bool
) -> None:
    app = f"found_{since}".lower()
    scripts.says(app, "deaf")
    process = scripts.launch(app)
    scripts.commits(app)
    ask_to_stop(scripts.kafka, app, why="a person")
    offset = scripts.sight(app, lambda s: s.stop is not None).stop_offset
    requests = Requests(stale=-1 if since else offset)
    trigger = Task(app).restart(Supervision(app, "gone", 0, base=0, requests=requests))
    assert trigger.process["id"] == process.id
    assert trigger.supervision["requests"]["ending"] == (-1 if since else offset)


def test_no_driver_is_launched_for_an_application_whose_topology_topic_is_lost(
    scripts: Scripts,
) -> None:
    """It would be refused, and could tell nobody: its last words are in that topic."""
    app = "unlisted"
    scripts.says(app, "claim and fail")
    scripts.launch(app)
    scripts.sight(app, lambda s: bool(s.ended) and not s.drivers)
    topic = topology_topic(app)
    scripts.kafka.admin().delete_topics([topic])[topic].result()
    until(lambda: not describe(scripts.kafka.admin(), [topic]))
    task = Task(app)
    with pytest.raises(AirflowFailException, match=f"holdfast repair topology {app}"):
        task.execute()
    assert "driver" not in task.kept


@pytest.mark.usefixtures("scripts")
def test_a_submission_that_fails_is_tried_again(connect: Connect, tmp_path: Path) -> None:
    """Once the stream has run; by the rule for every failure."""
    connect("yarn", "scripted", extra={"deploy-mode": "cluster", "spark-binary": "spark2-submit",
            "yarn_resourcemanager_webapp_address": "http://127.0.0.1:1"})  # fmt: skip
    (tmp_path / "refuses").touch()
    task = Task("refused")
    gone = DriverProcess("gone", "refused", "elsewhere", 1, "", 0)
    task.kept["driver"] = gone.to_json()
    trigger = task.restart(Supervision("refused", "gone", time.time()))
    assert trigger.supervision["failures"]["in_a_row"] == 1
    with pytest.raises(AirflowFailException, match="given up on refused: it failed 1 times"):
        task.restart(Supervision("refused", "gone", time.time(), max_restarts=0))
    (tmp_path / "refuses").unlink()
    (tmp_path / "silent").touch()
    with pytest.raises(AirflowFailException, match="may have taken the driver of 'refused'"):
        task.restart(Supervision("refused", "gone", time.time()))
