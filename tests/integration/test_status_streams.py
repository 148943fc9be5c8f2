"""What `holdfast status` and `drivers` say of streams: running, failed why, what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from state_lib.cli import app as command
from state_lib.driver.claims import write_claim
from state_lib.drivers.control import ask_to_stop
from state_lib.drivers.identity import Identity
from state_lib.drivers.presence import Presence
from state_lib.stack.broker import LocalBroker
from tests.integration.conftest import MakeApp
from tests.support.apps import App
from tests.support.waiting import until


@pytest.fixture(autouse=True)
def _settings(broker: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOLDFAST_BOOTSTRAP_SERVERS", broker.bootstrap)
    monkeypatch.setenv("COLUMNS", "300")


@pytest.fixture
def app(make_app: MakeApp) -> App:
    return make_app()


def identity(monkeypatch: pytest.MonkeyPatch, restarts: str) -> Identity:
    """As a driver's of which its supervisor has started others before."""
    monkeypatch.setenv("HOLDFAST_DRIVER_RESTARTS", restarts)
    return Identity.of_this_process()


def status(app: App) -> dict[str, Any]:
    result = CliRunner().invoke(command, ["status", "--json"])
    assert result.exit_code == 3, "no service runs"
    found = json.loads(result.stdout)
    assert found["streams_unknown"] is None
    (one,) = [s for s in found["streams"] if s["app"] == app.name]
    return dict(one)


def drivers(app: App) -> dict[str, Any]:
    result = CliRunner().invoke(command, ["drivers", app.name, "--seconds", "0", "--json"])
    assert result.exit_code == 0, result.output
    (one,) = json.loads(result.stdout)
    return dict(one)


def said(seen: dict[str, Any]) -> list[Any]:
    """What both commands say of a stream."""
    return [seen[name] for name in ("state", "why", "next_step")]


def test_a_stream_that_runs_and_fails(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    me = identity(monkeypatch, "2")
    presence = Presence(app.kafka, app.name, me)
    presence.join()
    write_claim(app.kafka, app.topology, me)
    until(lambda: status(app)["state"] == "running", 60)
    seen = status(app)
    assert (seen["restarts"], seen["why"], seen["next_step"]) == (2, None, None)
    assert said(drivers(app)) == said(seen)
    assert seen["driver"]["restarts"] == 2
    presence.leave("failed", "topic 'x' is cleaned up by time", retry=False)
    until(lambda: status(app)["state"] == "failed", 60)
    seen = status(app)
    assert seen["why"] == "topic 'x' is cleaned up by time"
    assert f"correct that, then start the job of {app.name}" in seen["next_step"]
    assert said(drivers(app)) == said(seen)

    again = Presence(app.kafka, app.name, identity(monkeypatch, "3"))
    again.leave("failed", "the JVM is gone", retry=True)  # before any claim
    seen = status(app)
    assert (seen["state"], seen["restarts"], seen["why"]) == ("failed", 3, "the JVM is gone")
    assert "its supervisor starts it again" in seen["next_step"]
    assert said(drivers(app)) == said(seen)
    for arguments in (["status"], ["drivers", app.name, "--seconds", "0"]):
        shown = CliRunner().invoke(command, arguments).output
        row = next(line for line in shown.splitlines() if f" {app.name} " in line)
        for word in ("failed", "the JVM is gone", "its supervisor starts it again"):
            assert word in row
        assert arguments != ["status"] or " 3 " in row


def test_one_that_was_killed_has_failed_and_one_that_was_stopped_has_not(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = identity(monkeypatch, "nonsense")
    write_claim(app.kafka, app.topology, me)  # it never joined its group: as after SIGKILL
    seen = status(app)
    assert (seen["state"], seen["restarts"]) == ("failed", 0)
    assert f"process {me.pid}, is gone without a word" in seen["why"]
    assert "its supervisor starts it again" in seen["next_step"]
    assert said(drivers(app)) == said(seen)
    ask_to_stop(app.kafka, app.name, why="enough")
    Presence(app.kafka, app.name, me).leave("stopped", "enough", retry=False)
    seen = status(app)
    assert said(seen) == ["stopped", "enough", None]
    assert said(drivers(app)) == said(seen)


def test_streams_are_not_known_without_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_BOOTSTRAP_SERVERS")  # the stack's own, which does not run
    result = CliRunner().invoke(command, ["status", "--json"])
    assert result.exit_code == 3
    found = json.loads(result.stdout)
    assert (found["streams"], found["streams_unknown"]) == ([], "Kafka does not run")
    shown = CliRunner().invoke(command, ["status"]).output
    assert "streams: not known; Kafka does not run" in shown
