"""The trigger alone: what survives it, what ends with it, and what it makes of an end."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest
from airflow.executors.workloads.task import TaskInstanceDTO
from airflow.models import TaskInstance
from airflow.models.trigger import Trigger
from airflow.sdk import DagRunState
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse
from airflow.sdk.execution_time.context import AssetStateStoreAccessor
from airflow.sdk.execution_time.supervisor import set_supervisor_comms
from airflow.triggers.base import TriggerEvent
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from sqlalchemy import select

from holdfast_airflow.handover import WHY
from holdfast_airflow.triggers.stream import SuperviseStreamTrigger
from holdfast_airflow.triggers.stream_end import StreamEndTrigger
from holdfast_airflow.watched import SUPERVISOR, app_asset
from state_lib.drivers.control import ask_to_stop
from state_lib.drivers.process import DriverProcess
from state_lib.drivers.requests import Requests
from state_lib.drivers.supervision import Supervision
from state_lib.stack.ports import free_port
from tests.dags.conftest import Scripts
from tests.support.waiting import until


def watching(process: DriverProcess, ending: int = -1, **given: Any) -> SuperviseStreamTrigger:
    """The trigger of a driver, as it comes out of Airflow's database."""
    supervision = Supervision(
        process.app, process.id, process.started_at / 1000, requests=Requests(ending=ending)
    )
    made = SuperviseStreamTrigger(
        process.app, process.to_json(), supervision.to_json(), look_every_s=0.2, **given
    )
    path, kwargs = made.serialize()
    assert path == "holdfast_airflow.triggers.stream.SuperviseStreamTrigger"
    stored = Trigger._decrypt_kwargs(Trigger.encrypt_kwargs(kwargs))
    assert stored == kwargs
    return SuperviseStreamTrigger(**stored)


async def first(trigger: SuperviseStreamTrigger | StreamEndTrigger) -> dict[str, Any]:
    async for event in trigger.run():
        assert isinstance(event, TriggerEvent)
        payload: dict[str, Any] = event.payload
        return payload
    raise AssertionError("the trigger ended without an event")


@pytest.fixture
def driver(scripts: Scripts) -> DriverProcess:
    """One that commits; every test has the same application, and a driver of its own."""
    scripts.says("triggered", "run")
    process = scripts.launch("triggered")
    scripts.sight("triggered", lambda s: s.batch_number > 0 and s.driver == process.id)
    return process


def test_a_crash_fires_when_its_pause_is_over(driver: DriverProcess) -> None:
    os.kill(driver.pid, signal.SIGKILL)
    event = asyncio.run(asyncio.wait_for(first(watching(driver)), 90))
    assert event["event"] == "restart"
    assert Supervision.from_json(event["supervision"]).failures.in_a_row == 1


def test_a_stop_fires(driver: DriverProcess, scripts: Scripts) -> None:
    ask_to_stop(scripts.kafka, "triggered", why="enough")
    event = asyncio.run(asyncio.wait_for(first(watching(driver)), 90))
    assert event["event"] == "stopped"
    assert event["text"].endswith("enough")


def test_what_a_person_writes_as_the_reason_of_a_stop_decides_nothing(
    driver: DriverProcess, scripts: Scripts
) -> None:
    ask_to_stop(scripts.kafka, "triggered", why=f"{WHY}, or so")
    event = asyncio.run(asyncio.wait_for(first(watching(driver)), 90))
    assert event["event"] == "stopped"


@pytest.mark.parametrize("known", [False, True])
def test_a_stop_meant_for_the_supervisor_before_starts_a_new_driver(
    driver: DriverProcess, scripts: Scripts, known: bool
) -> None:
    ask_to_stop(scripts.kafka, "triggered", why="enough", handover=not known)
    stop = asked(scripts, "enough")
    event = asyncio.run(asyncio.wait_for(first(watching(driver, ending=stop if known else -1)), 90))
    assert event["event"] == "restart"
    assert "starting a new one" in event["text"]
    assert event["supervision"]["requests"]["stale"] == stop


def test_a_stop_after_the_one_that_an_adopted_driver_heeds_stops_the_stream(
    driver: DriverProcess, scripts: Scripts
) -> None:
    os.kill(driver.pid, signal.SIGSTOP)  # a long batch
    ask_to_stop(scripts.kafka, "triggered", why="of before")
    ending = asked(scripts, "of before")
    ask_to_stop(scripts.kafka, "triggered", why="a person")
    os.kill(driver.pid, signal.SIGCONT)
    event = asyncio.run(asyncio.wait_for(first(watching(driver, ending=ending)), 90))
    assert (event["event"], event["text"][-8:]) == ("stopped", "a person")


def test_a_stop_after_a_clear_stops_the_stream(driver: DriverProcess, scripts: Scripts) -> None:
    """Even if the driver has ended by then, for the clear."""
    ask_to_stop(scripts.kafka, "triggered", why="cleared", handover=True)
    scripts.sight("triggered", lambda s: s.end_of(driver.id) is not None)
    ask_to_stop(scripts.kafka, "triggered", why="a person")
    asked(scripts, "a person")
    event = asyncio.run(asyncio.wait_for(first(watching(driver)), 90))
    assert event["event"] == "stopped"


def asked(scripts: Scripts, why: str) -> int:
    """Where a stop stands."""
    return scripts.sight("triggered", lambda s: s.stop == why).stop_offset


def test_a_triggerer_that_goes_leaves_the_driver_alone(
    driver: DriverProcess, scripts: Scripts
) -> None:
    async def cancelled() -> None:
        task = asyncio.create_task(first(watching(driver)))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    before = scripts.commits("triggered")
    after = scripts.sight("triggered", lambda s: s.batch_number > before.batch_number)
    assert after.driver == driver.id
    assert after.stop is None


def supervised_by(state: TaskInstanceState, scripts: Scripts) -> TaskInstanceDTO:
    """A task in Airflow's database, in a state."""
    scripts.says("handed_on", "fail")
    run = scripts.dag("handed_on").test(run_conf={"max_restarts": 0})
    assert run.state == DagRunState.FAILED
    with create_session() as session:
        ti = session.scalars(select(TaskInstance).where(TaskInstance.run_id == run.run_id)).one()
        ti.state = state
        session.flush()
        return TaskInstanceDTO.model_validate(ti, from_attributes=True)


@pytest.mark.parametrize("state", [TaskInstanceState.FAILED, TaskInstanceState.RUNNING])
def test_what_a_user_does_to_the_task_stops_the_driver_at_an_edge(
    driver: DriverProcess, scripts: Scripts, state: TaskInstanceState
) -> None:
    """Marked as failed; or cleared, and the next try is at work already."""
    trigger = watching(driver)
    trigger.task_instance = supervised_by(state, scripts)  # type: ignore[assignment]
    asyncio.run(trigger.on_kill())
    sight = scripts.sight("triggered", lambda s: s.end_of(driver.id) is not None)
    end = sight.end_of(driver.id)
    assert end is not None
    assert end.how == "stopped"
    assert end.handover
    assert end.why.startswith(f"{WHY} (handed_on_stream, ")
    until(lambda: not driver.alive(), 60)


def test_an_airflow_that_cannot_be_asked_does_not_keep_the_driver_running(
    driver: DriverProcess, scripts: Scripts
) -> None:
    trigger = watching(driver)
    trigger.task_instance = supervised_by(  # type: ignore[assignment]
        TaskInstanceState.FAILED, scripts
    )
    with set_supervisor_comms(Silent()):
        asyncio.run(trigger.on_kill())
    end = scripts.sight("triggered", lambda s: s.end_of(driver.id) is not None).end_of(driver.id)
    assert end is not None
    assert end.handover


class Silent:
    """The way to an api-server that is away."""

    def send(self, _message: object) -> None:
        raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={}))


def test_a_cancelled_trigger_is_cancelled_again_and_ends_its_driver(
    driver: DriverProcess, scripts: Scripts
) -> None:
    """As Airflow does every second, until the trigger has ended."""
    trigger = watching(driver)
    trigger.task_instance = supervised_by(  # type: ignore[assignment]
        TaskInstanceState.FAILED, scripts
    )

    async def cancelled() -> None:
        task = asyncio.create_task(trigger.on_kill())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    sight = scripts.sight("triggered", lambda s: s.end_of(driver.id) is not None)
    end = sight.end_of(driver.id)
    assert end is not None
    assert (end.how, end.handover) == ("stopped", True)


def test_a_trigger_that_another_triggerer_took_over_leaves_the_driver_alone(
    driver: DriverProcess, scripts: Scripts
) -> None:
    trigger = watching(driver)
    trigger.task_instance = supervised_by(  # type: ignore[assignment]
        TaskInstanceState.DEFERRED, scripts
    )
    asyncio.run(trigger.on_kill())
    before = scripts.commits("triggered")
    after = scripts.sight("triggered", lambda s: s.batch_number > before.batch_number)
    assert (after.driver, after.stop) == (driver.id, None)


@pytest.mark.parametrize(("later", "stays"), [(0, True), (1, False)])
def test_a_deferred_task_keeps_the_driver_only_of_this_try(
    scripts: Scripts, later: int, stays: bool
) -> None:
    """A clear may have deferred the next try already."""
    app = "handed_on"
    ti = supervised_by(TaskInstanceState.DEFERRED, scripts)
    scripts.says(app, "run")
    process = scripts.launch(app)
    scripts.sight(app, lambda s: s.batch_number > 0 and s.driver == process.id)
    store: Any = AssetStateStoreAccessor(name=app_asset(app).name)
    store.set(SUPERVISOR, {**store.get(SUPERVISOR), "try": ti.try_number + later})
    trigger = watching(process)
    trigger.task_instance = ti  # type: ignore[assignment]
    asyncio.run(trigger.on_kill())
    before = scripts.sight(app, lambda _: True)
    assert (before.stop is None and before.end_of(process.id) is None) is stays
    if stays:
        scripts.sight(app, lambda s: s.batch_number > before.batch_number)
    else:
        until(lambda: not process.alive(), 60)


def test_a_driver_that_could_not_be_asked_is_named(
    scripts: Scripts, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kafka is away, and its machine is another one."""
    monkeypatch.setattr("holdfast_airflow.triggers.stream.END_S", 0.5)
    there = DriverProcess("there", "triggered", "elsewhere", 4711, "", 0)
    away = {"HOLDFAST_BOOTSTRAP_SERVERS": f"127.0.0.1:{free_port()}"}
    trigger = watching(there, env=away)
    trigger.task_instance = supervised_by(  # type: ignore[assignment]
        TaskInstanceState.FAILED, scripts
    )
    asyncio.run(trigger.on_kill())
    said = "".join(capsys.readouterr())
    assert "was NOT asked to stop and runs on: process 4711 on elsewhere" in said
    assert "holdfast stop triggered" in said
    assert "stops at a batch's edge" not in said


def test_the_end_of_a_stream_is_awaited(driver: DriverProcess, scripts: Scripts) -> None:
    async def ended() -> dict[str, Any]:
        made = StreamEndTrigger("triggered", look_every_s=0.2)
        path, kwargs = made.serialize()
        assert path == "holdfast_airflow.triggers.stream_end.StreamEndTrigger"
        task = asyncio.create_task(first(StreamEndTrigger(**kwargs)))
        await asyncio.sleep(1)
        assert not task.done()
        ask_to_stop(scripts.kafka, "triggered", why="enough")
        return await asyncio.wait_for(task, 90)

    assert asyncio.run(ended())["event"] == "stopped"
    until(lambda: not driver.alive(), 60)
