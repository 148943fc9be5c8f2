"""Streams supervised on Airflow's harness, with drivers that do on demand what drivers may do."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from airflow.models import TaskInstance
from airflow.models.asset import AssetModel
from airflow.models.asset_state_store import AssetStateStoreModel
from airflow.sdk import DagRunState
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from sqlalchemy import select

from state_lib.drivers.control import ask_to_stop
from state_lib.stack.ports import free_port
from tests.dags.conftest import Connect, Scripts
from tests.support import airflow_home
from tests.support.waiting import until

LOOKED_AT = 40
"""Batches in which a supervisor looks several times, and would start another driver."""


@contextmanager
def beside(work: Callable[[], None]) -> Iterator[None]:
    """Do something while the DAG runs; its failure is the test's."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised below
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    yield
    thread.join()
    if failed:
        raise failed[0]


def stop(scripts: Scripts, app: str) -> None:
    ask_to_stop(scripts.kafka, app, why="the test has seen enough")


def ran(run: Any) -> tuple[DagRunState, str]:
    """How a run ended, and what its task said."""
    ti = run.get_task_instance("supervise")
    return run.state, str((ti.xcom_pull("supervise") or {}).get("text"))


def test_a_stopped_stream_is_a_success(scripts: Scripts) -> None:
    scripts.says("stopped", "run")

    def work() -> None:
        scripts.commits("stopped")
        stop(scripts, "stopped")

    with beside(work):
        run = scripts.dag("stopped").test()
    state, text = ran(run)
    assert state == DagRunState.SUCCESS
    assert text == "the driver of stopped has stopped: the test has seen enough"


def test_a_killed_driver_is_started_again(scripts: Scripts) -> None:
    scripts.says("crashing", "run")
    drivers: list[str | None] = []

    def work() -> None:
        first = scripts.commits("crashing")
        assert first.facts is not None
        os.kill(first.facts.pid, signal.SIGKILL)
        second = scripts.commits("crashing", other_than=first.driver)
        drivers.extend([first.driver, second.driver])
        assert second.facts is not None
        assert (first.facts.restarts, second.facts.restarts) == (0, 1), "for `holdfast status`"
        stop(scripts, "crashing")

    with beside(work):
        run = scripts.dag("crashing").test()
    assert ran(run)[0] == DagRunState.SUCCESS
    assert len(set(drivers)) == 2


def test_a_job_that_raises_at_start_is_given_up_with_its_reason(
    scripts: Scripts, capsys: pytest.CaptureFixture[str]
) -> None:
    scripts.says("hopeless", "fail")
    run = scripts.dag("hopeless").test(run_conf={"max_restarts": 1})
    assert run.state == DagRunState.FAILED
    said = capsys.readouterr().out
    assert "given up on hopeless: it failed 2 times in a row without a commit" in said
    assert "RuntimeError: raised at start, as the test wants it" in said


def test_a_job_that_fails_after_commits_is_started_again(scripts: Scripts) -> None:
    """However often: each commit begins the counting anew."""
    scripts.says("killed", "claim and fail")

    def work() -> None:
        first = scripts.commits("killed")
        second = scripts.commits("killed", other_than=first.driver)
        scripts.says("killed", "run")
        scripts.commits("killed", other_than=second.driver)
        stop(scripts, "killed")

    with beside(work):
        run = scripts.dag("killed").test(run_conf={"max_restarts": 1})
    assert ran(run)[0] == DagRunState.SUCCESS


def test_a_driver_that_is_taken_over_is_not_started_again(
    scripts: Scripts, capsys: pytest.CaptureFixture[str]
) -> None:
    scripts.says("rivals", "run")

    def work() -> None:
        first = scripts.commits("rivals")
        scripts.launch("rivals")
        scripts.commits("rivals", other_than=first.driver)

    with beside(work):
        run = scripts.dag("rivals").test()
    assert run.state == DagRunState.FAILED
    assert "rivals was taken over by another driver" in capsys.readouterr().out
    left = scripts.sight("rivals", lambda s: len(s.drivers) == 1)
    assert left.drivers == (left.driver,)


def test_a_driver_that_runs_already_is_adopted(scripts: Scripts) -> None:
    scripts.says("adopted", "run")
    process = scripts.launch("adopted")
    before = scripts.commits("adopted")

    def work() -> None:
        kept(scripts, "adopted", process.id)
        stop(scripts, "adopted")

    with beside(work):
        run = scripts.dag("adopted").test()
    assert ran(run)[0] == DagRunState.SUCCESS
    after = scripts.sight("adopted", lambda s: not s.drivers)
    assert (after.driver, after.epoch) == (process.id, before.epoch)


def test_a_driver_that_was_started_by_hand_is_adopted(scripts: Scripts) -> None:
    """No mark of a launcher is in its process: Kafka alone tells that it lives."""
    scripts.says("by_hand", "run")
    child = scripts.by_hand("by_hand")
    before = scripts.commits("by_hand")
    assert before.driver is not None
    driver = before.driver

    def work() -> None:
        kept(scripts, "by_hand", driver)
        begun = scripts.commits("by_hand").batch_number
        scripts.sight("by_hand", lambda s: s.batch_number > begun + LOOKED_AT)
        stop(scripts, "by_hand")

    with beside(work):
        run = scripts.dag("by_hand").test()
    assert child.wait(60) == 0
    assert ran(run)[0] == DagRunState.SUCCESS
    after = scripts.sight("by_hand", lambda s: not s.drivers)
    assert (after.driver, after.epoch) == (driver, before.epoch)


def test_a_driver_that_hangs_after_its_last_words_is_ended(
    scripts: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("state_lib.drivers.living.DYING_S", 2.0)
    scripts.says("hanging", "hang")
    process = scripts.launch("hanging")
    scripts.commits("hanging")

    def work() -> None:
        kept(scripts, "hanging", process.id)
        stop(scripts, "hanging")

    with beside(work):
        run = scripts.dag("hanging").test()
    assert ran(run)[0] == DagRunState.SUCCESS
    assert process.alive() is False


def test_the_driver_of_another_job_is_not_adopted(
    scripts: Scripts, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scripts.says("others", "run")
    job = tmp_path / "of_another_team.py"
    shutil.copy(airflow_home.SCRIPTED / "job.py", job)
    theirs = scripts.launch("others", job)
    before = scripts.commits("others")
    run = scripts.dag("others").test()
    assert run.state == DagRunState.FAILED
    said = capsys.readouterr().out
    assert f"application 'others' is run by another job: {job} of user" in said
    after = scripts.sight("others", lambda s: s.batch_number > before.batch_number)
    assert (after.driver, after.stop) == (theirs.id, None)


def test_a_spark_master_that_goes_is_tried_again(
    scripts: Scripts, connect: Connect, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once the stream has run, a launch that fails is a failure like any other."""
    scripts.says("unmastered", "run")
    binary = {"spark-binary": "spark3-submit"}

    def work() -> None:
        first = scripts.commits("unmastered")
        connect(f"spark://127.0.0.1:{free_port()}", "scripted", extra=binary)
        assert first.facts is not None
        os.kill(first.facts.pid, signal.SIGKILL)
        until(lambda: "could not be launched (failure 3 in a row)" in heard(), 90)
        connect("local[1,2]", "scripted", extra=binary)
        scripts.commits("unmastered", other_than=first.driver)
        stop(scripts, "unmastered")

    said: list[str] = []

    def heard() -> str:
        said.append(capsys.readouterr().out)
        return "".join(said)

    with beside(work):
        run = scripts.dag("unmastered").test()
    assert ran(run)[0] == DagRunState.SUCCESS
    assert "no Spark master answers at 127.0.0.1:" in heard()


def test_a_driver_on_its_way_out_is_followed_by_a_new_one(scripts: Scripts) -> None:
    """As after a clear: the old try's driver finishes its batch, then the new try's starts."""
    scripts.says("cleared", "deaf")
    process = scripts.launch("cleared")
    scripts.commits("cleared")
    ask_to_stop(scripts.kafka, "cleared", why="a user cleared the task")

    def work() -> None:
        kept(scripts, "cleared", process.id)
        scripts.says("cleared", "run")
        scripts.commits("cleared", other_than=process.id)
        stop(scripts, "cleared")

    with beside(work):
        run = scripts.dag("cleared").test()
    state, text = ran(run)
    assert state == DagRunState.SUCCESS
    assert text.endswith("the test has seen enough")


def test_a_second_run_leaves_the_first_ones_driver_alone(
    scripts: Scripts, capsys: pytest.CaptureFixture[str]
) -> None:
    scripts.says("twice", "run")

    def work() -> None:
        scripts.commits("twice")
        stop(scripts, "twice")

    with beside(work):
        first = scripts.dag("twice").test()
    with create_session() as session:
        one = select(TaskInstance).where(TaskInstance.run_id == first.run_id)
        session.scalars(one).one().state = TaskInstanceState.DEFERRED
    second = scripts.dag("twice").test()
    assert second.state == DagRunState.FAILED
    said = capsys.readouterr().out
    assert f"supervised by task supervise of run {first.run_id} of DAG twice_stream" in said
    assert scripts.sight("twice", lambda _: True).drivers == ()


def kept(scripts: Scripts, app: str, driver: str) -> None:
    """Wait until Airflow's asset state store names the driver."""

    def stored(_: object) -> bool:
        query = (
            select(AssetStateStoreModel.value)
            .join(AssetModel, AssetModel.id == AssetStateStoreModel.asset_id)
            .where(AssetModel.uri == f"holdfast://app/{app}", AssetStateStoreModel.key == "driver")
        )
        with create_session() as session:
            value = session.scalar(query)
        return value is not None and driver in value

    scripts.sight(app, stored)
