"""What runs tell of themselves: once that they fail, once that they do not, and that they ask."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.exceptions import HITLTimeoutError
from airflow.sdk import BaseNotifier
from airflow.sdk.exceptions import AirflowException

from holdfast_airflow.notifications.outcome import Question, note_why
from holdfast_airflow.operators.tell import TellOutcomeOperator


class Recorder(BaseNotifier):
    """Remembers what it was told; fails while it is broken."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[dict[str, Any]] = []
        self.broken: list[bool] = []

    def notify(self, context: Any) -> None:
        if self.broken:
            raise OSError("it is not to be reached")
        self.told.append(context["incident"])

    @property
    def kinds(self) -> list[str]:
        return [f"{one['kind']} {one['condition']}" for one in self.told]


class Airflow:
    """What a task sees of it: states of the run's tasks, XComs, the state store of its asset."""

    def __init__(self) -> None:
        kept = dict[str, Any]()
        self.store = SimpleNamespace(get=kept.get, set=kept.__setitem__)
        self.notifier = Recorder()
        self.states, self.xcoms = dict[str, str](), dict[tuple[str, str], str]()
        self.number = 0

    def context(self, task: str) -> Any:
        def pull(task_ids: str, key: str) -> str | None:
            return self.xcoms.get((task_ids, key))

        def push(key: str, value: str) -> None:
            self.xcoms[task, key] = value

        run_id = f"run-{self.number}"
        ti = SimpleNamespace(
            dag_id="app_restore",
            run_id=run_id,
            task_id=task,
            get_task_states=lambda **_: {run_id: {**self.states, "tell": "running"}},
            xcom_pull=pull,
            xcom_push=push,
        )
        return {"ti": ti, "asset_state_store": defaultdict(lambda: self.store)}

    def run(self, why: str | None = None, **states: str) -> None:
        """A run whose tasks ended so, to its task `tell`."""
        self.number += 1
        self.states, self.xcoms = states, {}
        for task, state in states.items():
            if state == "failed" and why is not None:
                context = self.context(task)
                context["exception"] = AirflowException(why)
                note_why(context)
        operator = TellOutcomeOperator(
            task_id="tell",
            app="app",
            condition="restore-failed",
            notifiers=[self.notifier],
            over_when={"report": "success", "watch": "skipped"},
        )
        operator.execute(self.context("tell"))


@pytest.fixture
def airflow() -> Airflow:
    return Airflow()


FAILED = {"watch": "success", "plan": "failed", "restore": "upstream_failed"}
WELL = {"watch": "success", "plan": "success", "restore": "success", "report": "success"}


def test_a_dag_that_fails_is_one_incident_until_a_run_succeeds(airflow: Airflow) -> None:
    airflow.run(**WELL)
    assert airflow.notifier.told == [], "all is well"
    airflow.run("the host is away", **FAILED)
    airflow.run("it is still away", **FAILED)
    assert airflow.notifier.kinds == ["alarm restore-failed"]
    (alarm,) = airflow.notifier.told
    assert (alarm["subject"], alarm["app"]) == ("app_restore", "app")
    assert alarm["seen"] == "task plan of run run-2: the host is away"
    assert alarm["document"] == "docs/runbook/restore-failed.md"
    airflow.run(**WELL)
    airflow.run(**WELL)
    assert airflow.notifier.kinds[1:] == ["recovery restore-failed"]
    airflow.run("again", **FAILED)
    assert airflow.notifier.kinds[2:] == ["alarm restore-failed"], "another incident"


def test_a_worker_that_was_lost_says_nothing_and_is_told_of(airflow: Airflow) -> None:
    note_why(airflow.context("plan"))  # where Airflow parses files: nobody knows why
    assert airflow.xcoms == {}
    airflow.run(None, **FAILED)
    assert "its worker was lost" in airflow.notifier.told[0]["seen"]


def test_who_has_not_answered_is_told_of_in_words(airflow: Airflow) -> None:
    context = airflow.context("approve")
    late = {"error": "the time has passed", "error_type": "timeout"}
    context["exception"] = HITLTimeoutError(late)
    note_why(context)
    assert airflow.xcoms == {("approve", "why"): "the time has passed"}


def test_a_rejection_is_no_recovery_and_a_day_without_a_loss_is_one(airflow: Airflow) -> None:
    airflow.run("nobody has answered", watch="success", approve="failed")
    airflow.run(watch="success", approve="success", restore="skipped", report="skipped")
    assert len(airflow.notifier.told) == 1
    airflow.run(watch="skipped", plan="skipped", report="skipped")
    assert airflow.notifier.kinds == ["alarm restore-failed", "recovery restore-failed"]


def test_a_notifier_that_fails_fails_its_task_and_is_told_by_the_next(airflow: Airflow) -> None:
    airflow.notifier.broken.append(True)
    with pytest.raises(AirflowException, match="1 of 1 notifiers failed"):
        airflow.run("away", **FAILED)
    airflow.notifier.broken.clear()
    airflow.run("still away", **FAILED)
    (alarm,) = airflow.notifier.told
    assert "run-1: away" in alarm["seen"], "since then it fails"


def test_a_question_is_told_once_and_that_it_is_answered(airflow: Airflow) -> None:
    question = Question("app", [airflow.notifier])
    question.asked(airflow.context("approve"), "Restore app?")
    question.asked(airflow.context("approve"), "Restore app?")
    (alarm,) = airflow.notifier.told
    assert (alarm["condition"], alarm["seen"]) == ("approval-waiting", "Restore app?")
    assert alarm["subject"] == "app_restore.approve of run-0"
    question.over(airflow.context("approve"))
    question.over(airflow.context("approve"))
    assert airflow.notifier.kinds[1:] == ["recovery approval-waiting"]


def test_a_question_that_was_left_unanswered_does_not_hide_the_next(airflow: Airflow) -> None:
    """Its run was ended by a user: nobody said that it is over."""
    question = Question("app", [airflow.notifier])
    question.asked(airflow.context("approve"), "Restore app?")
    airflow.number += 1
    question.asked(airflow.context("approve"), "Restore app?")
    kinds = ["alarm approval-waiting", "recovery approval-waiting"]
    assert sorted(airflow.notifier.kinds) == sorted([*kinds, kinds[0]])
    assert airflow.notifier.told[1]["subject"] == "app_restore.approve of run-1"


def test_who_cannot_be_told_keeps_nobody_from_being_asked(airflow: Airflow) -> None:
    airflow.notifier.broken.append(True)
    Question("app", [airflow.notifier]).asked(airflow.context("approve"), "Restore app?")
    Question("app", []).asked({}, "Restore app?")
    Question("app", []).over({})
