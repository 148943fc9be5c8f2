"""A restore's operators and triggers, each by itself: once, given up, refused, unapproved."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.exceptions import HITLTimeoutError
from airflow.sdk import DAG
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    TaskDeferred,
)

from holdfast_airflow.hooks.holdfast import settings_while_there
from holdfast_airflow.operators.restore import (
    ApproveRestoreOperator,
    PlanRestoreOperator,
    ReportRestoreOperator,
    RestoreOperator,
)
from holdfast_airflow.triggers import restore as module
from holdfast_airflow.triggers.restore import RestoreTrigger
from state_lib.apps.restore_watch import RestoreWatch
from state_lib.config import Settings
from tests.dags.conftest import Connect
from tests.support.apps import KV, app_of
from tests.support.host_process import TOKEN
from tests.support.hosts import address, publish
from tests.support.restore_group import (
    NOWHERE,
    Group,
    badly_answered,
    first,
)
from tests.support.waiting import SLOWNESS, until
from tests.unit.restore.test_stale import OLD as DISCARDING

APP = "asked_to_restore"


def attempt(kind: type[Any], ti: Any = None, **given: Any) -> Any:
    with DAG("alone", schedule=None):
        operator = kind(task_id="alone", **{"app": APP, **given})
    return operator.execute({"ti": ti})


# ---------------------------------------------------------------- approval


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


# ---------------------------------------------------------------- once


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


def test_bad_requests(group: Group) -> None:
    for tasks, why in (
        ([f"{APP}/7"], "tasks 0 to 1"),
        (["other/0"], f"no task of '{APP}'"),
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


def test_an_application_that_no_host_knows(group: Group, tmp_path: Path) -> None:
    """Kafka knows it, by a driver that has other hosts."""
    app = app_of(group.app.kafka, "unmet_r", tmp_path, [KV])
    app.create()
    publish(app, [address("elsewhere")])
    why = r"host 'host-[12]' knows no application 'unmet_r'; .*start its job.*holdfast drivers unm"
    with pytest.raises(AirflowFailException, match=why):
        attempt(PlanRestoreOperator, app=app.name)


def test_a_wrong_token_fails_at_once(group: Group) -> None:
    plans = [group.plan(0, "changelog").to_json()]
    wrong = {"HOLDFAST_TOKEN": "a-guess"}
    event = asyncio.run(first(RestoreTrigger(APP, plans, env=wrong)))
    assert event["restores"][0]["state"] == "failed"
    assert "bearer token" in event["restores"][0]["why"]
    nonsense = {"HOLDFAST_HOSTS": "nonsense"}
    event = asyncio.run(first(RestoreTrigger(APP, plans, env=nonsense)))
    assert event["restores"][0]["state"] == "failed"


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
