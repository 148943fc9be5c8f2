"""Kafka is away for minutes, longer than all its clients wait: who says what, and what goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from holdfast_airflow.hooks.holdfast import HoldfastHook
from holdfast_airflow.operators.restore_plan import PlanRestoreOperator
from holdfast_airflow.operators.snapshots import SnapshotStoresOperator
from holdfast_airflow.operators.verify import VerifyChangelogsOperator
from holdfast_airflow.triggers.condition import ConditionTrigger
from state_lib.checks.condition import CANNOT_LOOK
from state_lib.config import Settings
from state_lib.stack.broker import LocalBroker
from tests.support.brokers import paused, running_broker
from tests.support.host_process import TOKEN
from tests.support.restore_group import CONN, Group, running_group
from tests.support.sensing import first
from tests.support.waiting import SLOWNESS

pytestmark = pytest.mark.full

APP = "without-kafka"
AWAY_S = 150.0
"""Clients of Kafka give requests up after 60 s, and brokers forget transactions after 60 s."""
OF_HOSTS = ("host-down", "store-lost", "disk-filling")
OF_KAFKA = ("changelog-unsafe", "compaction-stuck", "task-without-owner")
"""(There is no driver here, and nobody takes snapshots.)"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """One that no other test shares."""
    with running_broker(tmp_path_factory.mktemp("kafka-away")) as running:
        yield running


@pytest.fixture(scope="module")
def running(broker: LocalBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    settings = Settings.load(bootstrap_servers=broker.bootstrap)
    with running_group(settings, APP, tmp_path_factory.mktemp(APP)) as made:
        yield made


def watch(name: Any, *, known: bool = False) -> asyncio.Task[dict[str, Any]]:
    """As the DAG's, but quicker."""
    looks: dict[str, Any] = {"poke_interval": 1.0, "hold_s": 2.0, "blind_s": 30.0}
    trigger = ConditionTrigger(
        APP, name, env={"HOLDFAST_TOKEN": TOKEN}, known=[name] if known else [], **looks
    )
    return asyncio.create_task(first(trigger))


def attempt(operator: type[BaseOperator]) -> None:
    """One try of a task."""
    with DAG("alone", schedule=None):
        task = operator(task_id="one", app=APP)
    task.execute({"ti": None})  # type: ignore[typeddict-item]


def failing() -> set[tuple[str, str]]:
    """What verify says: this application has no source, driver or snapshot."""
    verdicts = HoldfastHook(CONN).check(APP).verdicts
    return {(v.check, v.subject) for v in verdicts if v.level == "fail"}


def test_the_watch_says_so_once_tasks_are_tried_again_and_all_goes_on(
    group: Group, broker: LocalBroker
) -> None:
    fails = failing()
    before, held = group.digests(), {p: group.seen(p)["position"] for p in (0, 1)}

    async def run() -> None:
        hosts = [watch(name) for name in OF_HOSTS]
        kafka = {name: watch(name) for name in OF_KAFKA}
        await asyncio.sleep(3)
        assert not any(one.done() for one in (*hosts, *kafka.values())), "all is well"
        with paused(broker):
            end = time.monotonic() + AWAY_S
            for name, one in kafka.items():
                told = await asyncio.wait_for(one, AWAY_S * SLOWNESS)
                assert [(c["name"], c["subject"]) for c in told["conditions"]] == [
                    (CANNOT_LOOK, name)
                ]
            knows = [watch(name, known=True) for name in OF_KAFKA]
            for operator in (VerifyChangelogsOperator, PlanRestoreOperator, SnapshotStoresOperator):
                with pytest.raises(AirflowException) as failed:
                    await asyncio.to_thread(attempt, operator)
                assert not isinstance(failed.value, AirflowFailException), "a retry follows"
                assert broker.bootstrap in str(failed.value)
            assert await asyncio.to_thread(group.digests) == before, "hosts answer as before"
            await asyncio.sleep(max(0.0, end - time.monotonic()))
            assert not any(one.done() for one in (*hosts, *knows)), "told once, and nothing else"
        for name, one in zip(OF_KAFKA, knows, strict=True):
            event = await asyncio.wait_for(one, 120 * SLOWNESS)
            assert (event["conditions"], event["over"]) == ([], [name])
        assert not any(one.done() for one in hosts)
        for one in hosts:
            one.cancel()
        await asyncio.gather(*hosts, return_exceptions=True)

    asyncio.run(run())
    assert failing() == fails
    attempt(PlanRestoreOperator)
    assert {p: group.seen(p)["position"] for p in (0, 1)} == held, "nobody was fenced or built anew"
    assert group.digests() == before
    group.fill()
