"""Whoever listens to a host waits for a slow one, and not for one that is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from state_lib.client import stories
from state_lib.client.flight import FlightHostClient
from state_lib.errors import Busy, Unavailable
from state_lib.protocol.addresses import HostAddress
from tests.support.waiting import SLOWNESS, until

HOST = """
import sys, time
from pyarrow import flight
from state_lib.errors import Busy
from state_lib.protocol.wire import ALIVE, pack, to_flight, unpack

class Host(flight.FlightServerBase):
    def do_action(self, context, action):
        body = unpack(action.body)
        if action.type == "ping":
            return iter([flight.Result(pack({}))])
        if body["plan"].get("busy"):
            raise to_flight(Busy("another one runs"))
        return self.tell(**body["plan"])

    def tell(self, events, pause_s, beats=0, hush_s=0):
        for n in range(events):
            yield flight.Result(pack({"event": "batch", "n": n}))
            for _ in range(beats):
                yield flight.Result(pack(ALIVE))
                time.sleep(pause_s / beats)
            time.sleep(0 if beats else pause_s)
        time.sleep(hush_s)
        yield flight.Result(pack({"event": "done"}))

host = Host("grpc://127.0.0.1:0")
print(host.port, flush=True)
host.serve()
"""
SILENT_S = 2.0 * SLOWNESS
"""What is set: a process that only waits for its turn must not seem to be silent."""
SOON_S = SILENT_S + 6.0 * SLOWNESS
"""When it is told at the latest; without a bound it never is."""
pytestmark = pytest.mark.timeout(60)


class Host:
    """A process that tells events as it is told to."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.pid = process.pid
        assert process.stdout is not None
        self.address = HostAddress("host-1", "127.0.0.1", int(process.stdout.readline()), 1)

    def client(self) -> closing[FlightHostClient]:
        return closing(FlightHostClient(self.address, None))

    @contextmanager
    def stopped(self) -> Iterator[None]:
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with subprocess.Popen([sys.executable, "-c", HOST], stdout=subprocess.PIPE, text=True) as run:
        try:
            yield Host(run)
        finally:
            run.kill()


@pytest.fixture(autouse=True)
def _brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stories, "SILENT_S", SILENT_S)


def plan(events: int, pause_s: float) -> dict[str, Any]:
    return {"events": events, "pause_s": pause_s}


def nobody_listens() -> bool:
    return not {"listen", "watch"} & {thread.name for thread in threading.enumerate()}


def test_a_host_that_is_stopped_in_the_middle(host: Host) -> None:
    with host.client() as client:
        events = client.restore_run("app", 2, plan(1_000, 0.1))
        assert next(events)["n"] == 0
        with host.stopped():
            began = time.monotonic()
            with pytest.raises(Unavailable) as silent:
                list(events)
            assert time.monotonic() - began < SOON_S
            said = silent.value.message
            assert "host host-1 (127.0.0.1:" in said
            assert f"has not answered for {SILENT_S:g} s while app/2 was waited for" in said
            assert "'holdfast restore run app' again" in said
            assert silent.value.details["task"] == "app/2"
        assert list(client.restore_run("app", 2, plan(1, 0.0)))[-1]["event"] == "done"
    until(nobody_listens, 10, "left alone by the thread that waited")


@pytest.mark.parametrize("story", ["restore_run", "past_run", "past_fetch", "repair_run"])
def test_a_host_that_is_stopped_before_it_is_asked(host: Host, story: str) -> None:
    """Its connection is there, so that nothing is refused."""
    with host.client() as client:
        assert client.answers(10.0)
        with host.stopped():
            began = time.monotonic()
            more = {"repair_run": [], "past_fetch": ["snapshot"]}.get(story, [plan(1, 0.0)])
            with pytest.raises(Unavailable, match=r"'holdfast re.* app.*' again"):
                list(getattr(client, story)("app", 0, *more))
            assert time.monotonic() - began < SOON_S
    until(nobody_listens, 10, "left alone by the thread that waited")


def test_a_slow_host_that_answers_is_waited_for(host: Host) -> None:
    with host.client() as client:
        began = time.monotonic()
        told = list(client.restore_run("app", 0, plan(1, 3 * SILENT_S)))
        assert [one["event"] for one in told] == ["batch", "done"]
        assert time.monotonic() - began > 2.5 * SILENT_S


def test_a_connection_that_is_dead_though_the_host_answers_on_others(host: Host) -> None:
    """It has told that it is alive, and tells nothing more; that is no event for anybody."""
    pause_s = 1.5 * SILENT_S
    beating = {**plan(2, pause_s), "beats": 10, "hush_s": 6 * SILENT_S}
    with host.client() as client:
        began, told = time.monotonic(), list[dict[str, Any]]()
        with pytest.raises(Unavailable, match=f"has not answered for {SILENT_S:g} s"):
            told.extend(client.restore_run("app", 0, beating))
        took_s = time.monotonic() - began
        assert 2 * pause_s < took_s < 2 * pause_s + SOON_S
        assert [one["n"] for one in told] == [0, 1]
        assert client.answers(10.0)
    until(nobody_listens, 30, "left alone by the thread that waited")


def test_who_leaves_keeps_no_thread(host: Host) -> None:
    with host.client() as client:
        events = client.restore_run("app", 0, plan(1_000, 0.1))
        assert next(events)["n"] == 0
        events.close()  # type: ignore[attr-defined] # a generator
    until(nobody_listens, 10, "left, its connection closed under the thread that waits")


def test_what_a_host_refuses_is_raised(host: Host) -> None:
    with host.client() as client, pytest.raises(Busy, match="another one runs"):
        list(client.restore_run("app", 0, {"busy": True}))


def test_a_host_that_dies_is_said_at_once() -> None:
    with subprocess.Popen([sys.executable, "-c", HOST], stdout=subprocess.PIPE, text=True) as run:
        host = Host(run)
        with host.client() as client:
            events = client.restore_run("app", 0, plan(1_000, 0.1))
            next(events)
            run.kill()
            with pytest.raises(Unavailable, match="cannot be reached"):
                list(events)
