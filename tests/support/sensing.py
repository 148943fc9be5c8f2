"""Runs a sensor as Airflow does: its task defers, its trigger looks, its task resumes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from airflow.models.trigger import Trigger
from airflow.sdk.exceptions import TaskDeferred
from airflow.triggers.base import TriggerEvent

from holdfast_airflow.sensors import ConditionSensor
from holdfast_airflow.triggers.condition import ConditionTrigger
from state_lib.gathering.sensing import Look, Sense
from tests.support.waiting import SLOWNESS

QUIET_LOOKS = 3


class Looks:
    """Counts looks, which are real ones; ``last`` is what the last one showed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.last = 0, Look()
        real = Sense.look

        def look(sense: Sense) -> Look:
            self.last = real(sense)
            self.count += 1
            return self.last

        monkeypatch.setattr(Sense, "look", look)


def deferred(sensor: ConditionSensor) -> tuple[ConditionTrigger, TaskDeferred]:
    """The sensor's trigger, as it comes out of Airflow's database."""
    with pytest.raises(TaskDeferred) as raised:
        sensor.execute({})
    path, kwargs = raised.value.trigger.serialize()
    assert path == "holdfast_airflow.triggers.condition.ConditionTrigger"
    stored = Trigger._decrypt_kwargs(Trigger.encrypt_kwargs(kwargs))
    assert stored == kwargs
    return ConditionTrigger(**stored), raised.value


async def first(trigger: ConditionTrigger) -> dict[str, Any]:
    async for event in trigger.run():
        assert isinstance(event, TriggerEvent)
        payload: dict[str, Any] = event.payload
        return payload
    raise AssertionError("the trigger ended without an event")


async def quiet(waiting: asyncio.Task[dict[str, Any]], looks: Looks, more: int) -> None:
    """Let it look some times; it must not fire."""
    enough = looks.count + more
    while looks.count < enough:
        await asyncio.sleep(0.05)
        assert not waiting.done(), waiting.result()


def sensed(
    sensor: ConditionSensor, looks: Looks, failure: Callable[[], object], timeout_s: float = 60
) -> Any:
    """What the task returns: it waits while all is well, and fires after a failure."""
    trigger, task = deferred(sensor)

    async def run() -> dict[str, Any]:
        waiting = asyncio.create_task(first(trigger))
        await quiet(waiting, looks, QUIET_LOOKS)
        while (looks.last.conditions, looks.last.blind) != ((), None):
            await quiet(waiting, looks, 1)  # a host that answered late has not failed
        await asyncio.to_thread(failure)
        return await asyncio.wait_for(waiting, timeout_s * SLOWNESS)

    event = asyncio.run(run())
    assert (event["over"], event["until"]) == ([], None)
    return sensor.resume_execution(task.method_name, {"event": event}, {})
