"""What is told after a restore: the store is compared, the stream goes on with it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, TaskDeferred

from holdfast_airflow.operators.restore import ReportRestoreOperator
from holdfast_airflow.triggers.resumed import StreamResumedTrigger
from state_lib.drivers.identity import Identity
from state_lib.drivers.members import living_drivers
from state_lib.drivers.presence import Presence
from tests.support.hosts import publish
from tests.support.restore_group import PARTITIONS, Group, badly_answered, first
from tests.support.tries import Tries
from tests.support.waiting import SLOWNESS, until

APP = "reported"


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
