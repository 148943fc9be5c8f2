"""Drivers on a real broker: seen by their group, heard by their records, asked to stop."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic
from typer.testing import CliRunner

from state_lib.changelog.claims import ENDED, newest_claim, tell
from state_lib.changelog.progress import ProgressLog
from state_lib.changelog.reader import read
from state_lib.changelog.topics import topology_topic
from state_lib.cli import app as cli
from state_lib.cli._demo_run import Pipeline
from state_lib.client.airflow import Airflow, Run
from state_lib.config import Settings
from state_lib.driver.claims import write_claim
from state_lib.drivers.control import Control, ask_to_stop
from state_lib.drivers.early import Early
from state_lib.drivers.events import Event
from state_lib.drivers.identity import Identity
from state_lib.drivers.last_words import KEPT
from state_lib.drivers.look import Looker, observe
from state_lib.drivers.presence import Presence
from state_lib.drivers.process import DriverProcess, launch
from state_lib.drivers.sight import Ended
from state_lib.drivers.supervision import Supervision
from state_lib.errors import NotFound, Superseded
from state_lib.kafka import Kafka, ends
from state_lib.protocol.marker import now_ms
from state_lib.stack.broker import LocalBroker
from tests.integration.conftest import MakeApp
from tests.support.apps import KV, SOURCE, App, app_of, at, batch, claimed
from tests.support.waiting import SLOWNESS, deadline_in, until


@pytest.fixture
def app(make_app: MakeApp) -> App:
    return make_app()


@pytest.fixture
def looker(broker: LocalBroker, app: App, tmp_path: Path) -> Looker:
    settings = Settings.load(bootstrap_servers=broker.bootstrap, home=tmp_path)
    return Looker(settings, app.name)


def who(driver: str) -> Identity:
    return Identity(driver, "here", 1, "/log")


def test_a_driver_is_seen_from_its_joining_to_its_last_words(app: App, looker: Looker) -> None:
    assert looker.look().drivers == ()
    presence = Presence(app.kafka, app.name, who("one"))
    presence.join()
    until(lambda: looker.look().drivers == ("one",), 60)
    epoch = write_claim(app.kafka, app.topology, who("one"))
    presence.streaming(epoch, "http://ui")
    seen = looker.look()
    assert (seen.epoch, seen.driver, seen.away) == (epoch, "one", None)
    assert seen.facts is not None
    assert (seen.facts.ui, seen.facts.host, seen.facts.log) == ("http://ui", "here", "/log")
    presence.leave("failed", "the reason", retry=False)
    until(lambda: looker.look().drivers == (), 60)
    end = looker.look().end_of("one")
    assert end is not None
    assert (end.how, end.why, end.retry) == ("failed", "the reason", False)


def test_what_is_said_around_claims_is_no_claim(app: App, looker: Looker) -> None:
    epoch = write_claim(app.kafka, app.topology, who("one"))
    control = Control(app.kafka, app.name, who("one"))
    control.begin()
    assert control.heed(epoch) is None
    ask_to_stop(app.kafka, app.name, why="tired")
    assert control.heed(epoch) == "tired"
    assert looker.look().stop == "tired"
    claim = newest_claim(app.kafka, app.name)
    assert claim is not None
    assert claim.epoch == epoch
    newer = write_claim(app.kafka, app.topology, who("two"))
    with pytest.raises(Superseded) as caught:
        control.heed(epoch)
    assert caught.value.details["current"] == newer
    assert looker.look().stop is None, "a request reaches those that started before it"
    late = Control(app.kafka, app.name, who("late"))
    late.begin()
    assert late.heed(newer) is None


def test_a_handover_is_heard_by_driver_and_watchers(app: App, looker: Looker) -> None:
    epoch = write_claim(app.kafka, app.topology, who("one"))
    presence = Presence(app.kafka, app.name, who("one"))
    control = Control(app.kafka, app.name, who("one"))
    control.begin()
    ask_to_stop(app.kafka, app.name, why="cleared", handover=True)
    assert control.heed(epoch) == "cleared"
    assert looker.look().handover_asked is not None
    presence.leave("stopped", "cleared", retry=False, handover=control.handover)
    end = looker.look().end_of("one")
    assert end is not None
    assert end.handover


@pytest.mark.parametrize("later", ["stop", "handover"])
def test_neither_a_stop_nor_a_handover_hides_the_other(
    app: App, looker: Looker, later: str
) -> None:
    """A driver that was asked for both ends the stream, as its supervisor makes of it."""
    epoch = write_claim(app.kafka, app.topology, who("one"))
    control = Control(app.kafka, app.name, who("one"))
    control.begin()
    for handover in (False, True) if later == "handover" else (True, False):
        why = "cleared" if handover else "a person"
        ask_to_stop(app.kafka, app.name, why=why, handover=handover)
    assert control.heed(epoch) == "a person"
    assert (control.ending, control.handover) == (("stopped", "a person"), False)
    seen = looker.look()
    assert seen.stop_asked is not None
    assert seen.handover_asked is not None
    assert (seen.stop_asked.why, seen.handover_asked.why) == ("a person", "cleared")
    assert seen.asked == (seen.handover_asked if later == "handover" else seen.stop_asked)
    assert (
        seen.heard
        == seen.stop_offset + 1
        == max(seen.stop_asked.offset, seen.handover_asked.offset) + 1
    )
    assert seen.stream_stopped_since(epoch) == seen.stop_asked


def test_last_words_of_an_older_version_are_no_handover(app: App, looker: Looker) -> None:
    write_claim(app.kafka, app.topology, who("one"))
    said = {"id": "one", "how": "stopped", "why": "enough", "retry": False}
    tell(app.kafka, app.name, ENDED, said)
    assert looker.look().end_of("one") == Ended("one", "stopped", "enough", retry=False)


def test_commits_and_lag_are_seen_as_they_come(
    app: App, looker: Looker, broker: LocalBroker
) -> None:
    topic = NewTopic(SOURCE, 1, 1)
    futures = app.kafka.admin().create_topics([topic])
    with contextlib.suppress(KafkaException):  # of another test
        futures[SOURCE].result()
    producer = app.kafka.producer()
    for _ in range(25):
        producer.produce(SOURCE, b"x", partition=0)
    producer.flush(60)
    before = ends(app.kafka.admin(), [(SOURCE, 0)])[SOURCE, 0]
    epoch = write_claim(app.kafka, app.topology, who("one"))
    task = app.opened()
    marker = claimed(task, epoch)
    assert (looker.look().batch_number, looker.look().done) == (0, 0)
    for n in (1, 2):
        progress(app, epoch, n)
        ProgressLog(app.kafka, app.name).append({"kind": "restore"})
        running = looker.look().batch
        assert running is not None
        assert (running.batch_number, running.rows) == (n, 10)
        marker = task.commit(batch(marker))
        until(lambda n=n: looker.look().batch_number == n, 30)  # type: ignore[misc]
    seen = looker.look()
    assert (seen.done, seen.total, seen.lag) == (20, before, before - 20)
    assert seen.stream_time_ms == marker.stream_time_ms
    assert seen.committed_at == marker.written_at
    assert seen.batch is None
    fresh = Looker(Settings.load(bootstrap_servers=broker.bootstrap, home=app.root), app.name)
    again = fresh.look()
    fresh.close()
    assert (again.batch_number, again.done, again.epoch) == (2, 20, epoch), (
        "seen at once, not only followed"
    )


def progress(app: App, epoch: int, n: int) -> None:
    """As a driver records a batch before it begins."""
    positions = {"from": at(10 * n - 10).to_json(), "to": at(10 * n).to_json()}
    record = {"epoch": epoch, "n": n, "clock": 0, "now": now_ms(), **positions}
    ProgressLog(app.kafka, app.name).append(record)


@pytest.mark.full
def test_kafka_away_is_one_alarm_and_the_driver_is_found_again(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "broker") as broker:
        kafka = Kafka({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        app = app_of(kafka, "away", tmp_path, (KV,))
        app.create()
        looker = Looker(Settings.load(bootstrap_servers=broker.bootstrap, home=tmp_path), "away")
        supervision = Supervision("away", "one", time.time())
        presence = Presence(kafka, "away", who("one"))
        presence.join()
        until(lambda: looker.look().drivers == ("one",), 60)
        write_claim(kafka, app.topology, who("one"))
        told: list[str] = []

        def fed(name: str) -> bool:
            """Nothing but the group shows the driver here: `process` is None."""
            new = supervision.feed(looker.look(), process=None, now=time.time())
            told.extend(e.name for e in new)
            return name in told

        until(lambda: fed("started"), 60)
        broker.kill()
        until(lambda: fed("kafka_away"), 60)
        for _ in range(5):
            started = time.monotonic()
            fed("")
            took = time.monotonic() - started
            assert took < 30 * SLOWNESS, "a look ends, whatever the broker does"
        broker.start()
        until(lambda: fed("kafka_back"), 90)
        until(lambda: looker.look().drivers == ("one",), 90)
        until(lambda: fed("kafka_back"), 5)
        assert told == ["started", "kafka_away", "kafka_back"]
        presence.leave("stopped", "enough", retry=False)
        until(lambda: fed("stopped"), 60)
        looker.close()


def test_a_job_that_raises_at_start_is_given_up_with_its_last_lines(
    app: App, looker: Looker, tmp_path: Path
) -> None:
    job = tmp_path / "job.py"
    job.write_text("raise RuntimeError('no such column')\n")

    def start() -> DriverProcess:
        command = [sys.executable, str(job)]
        return launch(app.name, command, env=os.environ, log=tmp_path / "log")

    process = start()
    supervision = Supervision(app.name, process.id, time.time(), max_restarts=1)
    told: list[Event] = []
    deadline = deadline_in(60)
    while not supervision.over:
        assert time.monotonic() < deadline
        sight, alive = observe(looker, process)
        said = [] if alive else process.last_lines()
        told += supervision.feed(sight, process=alive, now=time.time(), said=said)
        if supervision.due:
            process = start()
            supervision.launched(process.id, time.time())
        time.sleep(0.2)
    assert [e.name for e in told] == ["crashed", "restart", "crashed", "gave_up"]
    assert "RuntimeError: no such column" in told[-1].text


class FakeDriver:
    """Claims and stops when asked to, with no Spark: what `holdfast stop` and `drivers` see."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.presence = Presence(app.kafka, app.name, who("fake"))
        self._control = Control(app.kafka, app.name, self.presence.who)
        self._control.begin()
        self.presence.join()
        self.epoch = write_claim(app.kafka, app.topology, self.presence.who)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (why := self._control.heed(self.epoch)) is None:
            time.sleep(0.1)
        self.presence.leave("stopped", why, retry=False)


def test_holdfast_drivers_and_stop(
    app: App, looker: Looker, broker: LocalBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOLDFAST_BOOTSTRAP_SERVERS", broker.bootstrap)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    driver = FakeDriver(app)
    until(lambda: looker.look().drivers == ("fake",), 60)
    (shown,) = called("drivers", app.name, "--seconds", "0.1")
    assert shown["state"] == "running"
    assert (shown["epoch"], shown["host"], shown["pid"]) == (driver.epoch, "here", 1)
    everyone = called("drivers", "--seconds", "0")
    assert app.name in [one["app"] for one in everyone]

    stopped = called("stop", app.name, "--wait", "--timeout", "60", "--why", "a test")
    assert stopped == {
        "app": app.name,
        "asked": True,
        "ended": [{"id": "fake", "how": "stopped", "why": "a test"}],
        "running": [],
    }
    (shown,) = called("drivers", app.name, "--seconds", "0")
    assert (shown["state"], shown["ended"]) == ("stopped", "stopped: a test")
    assert (shown["why"], shown["next_step"]) == ("a test", None)
    assert called("stop", app.name, "--wait")["ended"] == [], "nothing runs: nothing to wait for"

    plain = CliRunner().invoke(cli, ["drivers", app.name, "--seconds", "0"])
    assert plain.exit_code == 0
    unknown = CliRunner().invoke(cli, ["stop", "nosuch"])
    assert unknown.exit_code == 1
    assert "nosuch" in unknown.stderr


def test_a_stranger_that_was_refused_is_not_how_the_application_ended(
    app: App, broker: LocalBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOLDFAST_BOOTSTRAP_SERVERS", broker.bootstrap)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    write_claim(app.kafka, app.topology, who("ours"))
    Presence(app.kafka, app.name, who("ours")).leave("stopped", "enough", retry=False)
    for n in range(KEPT + 1):
        stranger = Presence(app.kafka, app.name, who(f"stranger-{n}"))
        stranger.leave("failed", "does not fit", retry=False)
    (shown,) = called("drivers", app.name, "--seconds", "0")
    assert (shown["state"], shown["ended"]) == ("stopped", "stopped: enough")


def test_every_driver_has_last_words_of_its_own_and_the_newest_are_kept(app: App) -> None:
    """Compaction takes none of them; that of the newest claim's driver stays among them."""
    write_claim(app.kafka, app.topology, who("ours"))
    drivers = ["ours", *(f"stranger-{n}" for n in range(KEPT + 2))]
    for driver in drivers:
        Presence(app.kafka, app.name, who(driver)).leave("failed", "does not fit", retry=False)
    topic = topology_topic(app.name)
    end = ends(app.kafka.admin(), [(topic, 0)])[topic, 0]
    newest = {r.key(): r.value() for some in read(app.kafka, topic, 0, 0, end) for r in some}
    kept = [json.loads(v)["id"] for k, v in newest.items() if v and (k or b"").startswith(ENDED)]
    assert kept == ["ours", *drivers[-KEPT:]]


def test_the_demo_waits_for_a_driver_even_where_all_is_done(
    app: App, broker: LocalBroker, tmp_path: Path
) -> None:
    settings = Settings.load(bootstrap_servers=broker.bootstrap, home=tmp_path)
    write_claim(app.kafka, app.topology, who("of-before"))
    with Airflow("http://127.0.0.1:1", "nobody", None, patience_s=0) as airflow:
        pipeline = Pipeline(settings, airflow, app.name, Run("x_load", "1", "success"))
        pipeline.stream = Run("x_stream", "1", "running")
        assert not pipeline.streams()
        presence = Presence(app.kafka, app.name, who("one"))
        presence.join()
        until(pipeline.streams, 60)
        presence.leave("stopped", "enough", retry=False)


def test_holdfast_stop_says_when_it_takes_too_long(
    app: App, looker: Looker, broker: LocalBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOLDFAST_BOOTSTRAP_SERVERS", broker.bootstrap)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    presence = Presence(app.kafka, app.name, who("deaf"))
    presence.join()
    write_claim(app.kafka, app.topology, who("deaf"))
    until(lambda: looker.look().drivers == ("deaf",), 60)
    result = CliRunner().invoke(cli, ["stop", app.name, "--wait", "--timeout", "1"])
    assert result.exit_code == 1
    assert "has not stopped in 1 s" in result.stderr
    presence.leave("stopped", "", retry=False)


def called(*arguments: str) -> Any:
    result = CliRunner().invoke(cli, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_an_application_that_never_ran_cannot_be_stopped(kafka: Kafka, name: str) -> None:
    with pytest.raises(NotFound, match="never run"):
        ask_to_stop(kafka, name, why="x")


def test_what_is_said_while_the_jvm_starts_is_heeded(
    app: App, broker: LocalBroker, tmp_path: Path
) -> None:
    settings = Settings.load(bootstrap_servers=broker.bootstrap, home=tmp_path)
    early = Early(app.name, settings)
    early._thread.join(30)
    ask_to_stop(app.kafka, app.name, why="before it was declared")
    watched = early.watched()
    watched.control.begin()
    assert watched.control.heed(None) == "before it was declared"
