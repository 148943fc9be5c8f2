"""A host that is stopped in the middle of a restore: the command says so, and the host goes on."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from state_lib.cli import app as command
from state_lib.client import stories
from state_lib.client.flight import FlightHostClient
from state_lib.errors import Unavailable
from state_lib.protocol.wire import BEAT_S
from tests.integration.conftest import MakeApp
from tests.support.apps import KV
from tests.support.environment import set_environment
from tests.support.host_process import Hosts
from tests.support.hosts import publish
from tests.support.waiting import SLOWNESS, until

SILENT_S = BEAT_S + 2.0 * SLOWNESS
"""Longer than a host that works is silent."""
HELD_S = SILENT_S + 4.0
SOON_S = SILENT_S + 6.0 * SLOWNESS
pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def hosts(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hosts]:
    """One host process with one task, and what this process's settings name."""
    app = make_app([KV])
    found = Hosts(app)
    found.start(publish(app))
    monkeypatch.chdir(tmp_path)
    for name in [n for n in os.environ if n.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    set_environment(monkeypatch, found.settings)
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setattr(stories, "SILENT_S", SILENT_S)
    try:
        for n in range(1, 4):
            found.commit(n, {b"same": b"%d" % n, b"k%d" % n: b"v"})
        yield found
    finally:
        found.stop()


def test_a_restore_goes_on_at_a_host_that_was_stopped(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, pid = hosts.app.name, hosts.processes["host-1"].pid
    run = ["restore", "run", app]
    told, silent_at = FlightHostClient.restore_run, list[float]()

    def stopping(self: FlightHostClient, *words: Any) -> Iterator[dict[str, Any]]:
        for event in told(self, *words):
            yield event
            if event["event"] == "end":
                os.kill(pid, signal.SIGSTOP)
                silent_at.append(time.monotonic())

    hosts.armed.write_text(f"restore.before_checkpoint=sleep:{HELD_S}")
    monkeypatch.setattr(FlightHostClient, "restore_run", stopping)
    try:
        left = CliRunner().invoke(command, [*run, "--from", "changelog", "--yes"])
    finally:
        os.kill(pid, signal.SIGCONT)
        monkeypatch.setattr(FlightHostClient, "restore_run", told)
        hosts.armed.write_text("")
    assert left.exit_code == 1, left.output
    assert f"{app}/0: host host-1 (127.0.0.1:" in left.stderr
    assert f"has not answered for {SILENT_S:g} s" in left.stderr
    assert f"'holdfast restore run {app}' again" in left.stderr
    assert time.monotonic() - silent_at[0] < SOON_S

    again = until(lambda: _ended(run), 60, "done by the host")
    assert "nothing to restore" in again
    hosts.commit(4, {b"same": b"4"})
    with hosts.client() as client:
        marker, chunks = client.scan(app, 0, "kv")
        entries = {k.as_py(): v.as_py() for c in chunks for k, v in zip(*c.columns, strict=True)}
    assert marker.batch_number == 4
    assert entries == {b"same": b"4", **{b"k%d" % n: b"v" for n in range(1, 4)}}


def test_repairs_and_ways_back_wait_for_no_stopped_host(hosts: Hosts) -> None:
    """It keeps the connection on which it has answered before."""
    app, pid = hosts.app.name, hosts.processes["host-1"].pid
    with hosts.client() as client:
        assert client.answers(10.0)
        os.kill(pid, signal.SIGSTOP)
        try:
            for story, again in (
                (client.past_fetch(app, 0, "any"), f"restore run {app} --to"),
                (client.repair_run(app, 0), f"repair changelog {app}"),
            ):
                began = time.monotonic()
                with pytest.raises(Unavailable, match=again):
                    list(story)
                assert time.monotonic() - began < SOON_S
                assert client._client is None, "the next call makes a connection of its own"
        finally:
            os.kill(pid, signal.SIGCONT)
        assert client.answers(10.0)


def _ended(words: list[str]) -> str:
    """What the command says once it does not fail any more; ``busy`` until then."""
    done = CliRunner().invoke(command, words)
    return done.stdout if done.exit_code == 0 else ""
