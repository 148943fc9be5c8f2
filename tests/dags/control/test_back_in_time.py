"""Back in time by Airflow: once for an approval, whatever is killed or cleared on the way."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.sdk import DAG, DagRunState
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from fastapi.testclient import TestClient

from holdfast_airflow.operators.restore import GoBackOperator, PlanPastOperator
from state_lib.apps.past import Journey, plan
from state_lib.drivers.members import living_drivers
from state_lib.kafka import Kafka
from state_lib.stack import Stack
from tests.dags.conftest import Connect
from tests.support import airflow_home
from tests.support.apps import App, app_of
from tests.support.past_world import PARTITIONS, TOKEN, World, running_world
from tests.support.past_world import run as by_command
from tests.support.person import Person, airflows_api
from tests.support.tries import Tries
from tests.support.waiting import until

CONN = "holdfast_default"


@pytest.fixture
def world(
    stack: Stack,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Iterator[World]:
    """An application of three tasks, named by the test; Airflow knows it by the connection."""
    name = getattr(request, "param", re.sub(r"[^a-z0-9]+", "-", request.node.name)[:40])
    made: list[App] = []

    def make_app(stores: Any) -> App:
        made.append(app_of(Kafka.of(stack.settings), name, tmp_path, stores))
        return made[-1]

    monkeypatch.setenv("SCRIPTED", str(tmp_path))
    with running_world(make_app, monkeypatch, tmp_path) as found:
        settings = found.settings
        extra = {"hosts": settings.hosts, "snapshots_url": settings.snapshots_url}
        given = {"conn_type": "holdfast", "password": TOKEN, "extra": extra}
        connect(settings.bootstrap_servers, CONN, **given)
        yield found
    for app in made:
        app.close()


@pytest.fixture
def dag(world: World, bag: BundleDagBag) -> DAG:
    del bag  # its bundles are where `dag.test` looks
    folder = airflow_home.SCRIPTED
    scripted = BundleDagBag(dag_folder=folder, bundle_path=folder, bundle_name="scripted")
    return scripted.dags[f"{world.app.name}_restore_by_hand"]


@pytest.fixture(scope="module")
def web(database: None) -> Iterator[TestClient]:  # noqa: ARG001 - it must be there
    with airflows_api() as made:
        yield made


@pytest.fixture
def person(web: TestClient, dag: DAG) -> Iterator[Person]:
    made = Person(web, dag.dag_id)
    yield made
    made.done()


def states(run: Any) -> dict[str, str]:
    return {ti.task_id: str(ti.state) for ti in run.get_task_instances()}


def xcom(run: Any, task: str) -> Any:
    return run.get_task_instance(task).xcom_pull(task)


WENT = {"plan": "skipped", "restore": "skipped"} | dict.fromkeys(
    ("plan_past", "approve", "go_back", "report", "tell"), "success"
)


@pytest.mark.parametrize("world", ["by_hand_past"], indirect=True)
def test_an_application_goes_back_once_a_person_has_approved_it(
    world: World, dag: DAG, person: Person, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = world.app.name
    then = world.commits(range(3))
    to = world.savepoint()
    now = world.commits(range(3, 9))
    with world.driver() as heard:
        until(lambda: living_drivers(world.app.kafka, app), 60)

        def nothing_was_done() -> None:
            assert heard == []
            assert world.digests() == now

        person.will("Approve", first=nothing_was_done)
        run = dag.test(run_conf={"to": to})
        person.done()
    said = capsys.readouterr().out
    assert run.state == DagRunState.SUCCESS, said
    assert states(run) == WENT
    assert heard == ["a restore to the past was asked for"]
    assert world.digests() == then
    (body,) = person.bodies
    assert f"- **discarded** of {app}/2: the state of commit" in body
    assert "driver one ends at a batch's edge" in body
    went = [one["task"] for one in xcom(run, "go_back")]
    assert went == [f"{app}/{p}" for p in range(PARTITIONS)]
    report = xcom(run, "report")
    assert report["verified"]
    assert report["stream"].startswith(f"no driver of {app} runs")
    told = (tmp_path / "told").read_text().splitlines()
    assert told == ["alarm approval-waiting", "recovery approval-waiting"]
    world.claim("two")
    assert world.commits(range(3, 9)) == now, "as if the stream had run once"


@pytest.mark.parametrize("world", ["by_hand_no"], indirect=True)
def test_a_no_changes_nothing_and_what_cannot_be_is_said(
    world: World, dag: DAG, person: Person, capsys: pytest.CaptureFixture[str]
) -> None:
    world.commits(range(2))
    world.savepoint()
    now = world.commits(range(2, 4))
    person.will("Reject")
    run = dag.test(run_conf={"to": "2999-01-01"})
    assert states(run)["plan_past"] == "failed"
    assert "in the future" in capsys.readouterr().out
    at = max(task.marker.written_at for task in world.tasks)
    run = dag.test(run_conf={"to": str(at), "tasks": [0, 1]})
    person.done()
    assert states(run) == {**WENT, "go_back": "skipped", "report": "skipped"}
    assert f"{world.app.name}/2" not in person.bodies[0]
    assert world.digests() == now


def journey_of(world: World, to: str) -> Journey:
    return plan(world.settings, world.app.name, to)


def tries(world: World, journey: Journey) -> Tries:
    given = {"journey": journey.to_json(), "approved": {"approved": [journey.id]}}
    return Tries(lambda: GoBackOperator(task_id="go_back", app=world.app.name, **given))


def done(task: Tries, trigger: Any) -> list[str]:
    event = task.waited(trigger)
    assert event["event"] == "ended", event
    return [one["task"] for one in task.resume(event)]


@pytest.mark.parametrize("point", ["past.stopped", "past.claimed"])
def test_killed(world: World, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next try ends it; a later one, or one that was cleared, does not do it again."""
    then = world.commits(range(2))
    to = world.savepoint()
    now = world.commits(range(2, 6))
    everyone = [f"{world.app.name}/{p}" for p in range(PARTITIONS)]
    task = tries(world, journey_of(world, to))
    monkeypatch.setenv("HOLDFAST_FAILPOINTS", f"{point}=kill")
    event = task.waited(task.execute())
    assert event["event"] == "died"
    with pytest.raises(AirflowException, match="ended without a word") as died:
        task.resume(event)
    assert not isinstance(died.value, AirflowFailException)
    assert world.digests() == now
    monkeypatch.delenv("HOLDFAST_FAILPOINTS")
    assert done(task, task.execute()) == everyone
    assert world.digests() == then

    world.claim("two")
    later = world.commits(range(2, 4))
    found = task.execute()  # its worker was lost with the answer
    assert [one["task"] for one in found] == everyone
    assert done(task, task.execute(cleared=True)) == everyone
    assert world.digests() == later, "nothing went back a second time"
    other = tries(world, journey_of(world, to))
    other.ti.run_id = "another"
    assert done(other, other.execute()) == everyone
    assert world.digests() == then, "another wish is another one"


def test_what_somebody_else_did_since_is_not_undone(world: World) -> None:
    world.commits(range(2))
    to = world.savepoint()
    world.commits(range(2, 4))
    later = world.savepoint()
    world.commits(range(4, 6))
    task = tries(world, journey_of(world, to))
    by_command("run", world.app.name, "--to", later, "--yes")
    there = world.digests()
    event = task.waited(task.execute())
    with pytest.raises(AirflowFailException, match="after this was planned: plan again"):
        task.resume(event)
    assert world.digests() == there


def attempt(kind: Callable[..., Any], world: World, **given: Any) -> Any:
    with DAG("alone", schedule=None):
        operator = kind(task_id="alone", app=world.app.name, **given)
    return operator.execute({"ti": None})


def test_nobody_goes_back_unasked(world: World) -> None:
    world.commits(range(2))
    to = world.savepoint()
    journey = journey_of(world, to).to_json()
    assert attempt(GoBackOperator, world, journey=journey, approved=None) == [], "it stands there"
    now = world.commits(range(2, 4))
    journey = attempt(PlanPastOperator, world, to=to, republish="False")
    assert [one["records"] for one in journey["plans"]] == [20] * PARTITIONS
    for approved in (None, {"approved": ["another"]}):
        with pytest.raises(AirflowFailException, match="nobody has approved"):
            attempt(GoBackOperator, world, journey=journey, approved=approved)
    with pytest.raises(AirflowFailException, match="not a plan as"):
        attempt(GoBackOperator, world, journey={"app": "app"}, approved=None)
    for given, why in (
        ({"to": "yesterday"}, "neither the id"),
        ({"to": to, "tasks": "[9]"}, "tasks 0 to 2"),
        ({"to": "20200101T000000000Z-00000000"}, "no snapshot or savepoint"),
    ):
        with pytest.raises(AirflowFailException, match=why):
            attempt(PlanPastOperator, world, **given)
    assert world.digests() == now
