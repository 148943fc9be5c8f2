"""``holdfast restore … --to`` over two hosts, of which something is killed or fails on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from state_lib.apps.pruning import prune_application
from state_lib.cli import app as command
from state_lib.client.flight import FlightHostClient
from state_lib.errors import Unavailable
from state_lib.protocol.placement import owner_of
from state_lib.snapshots.listing import list_snapshots
from state_lib.snapshots.prune import Retention
from tests.integration.conftest import MakeApp
from tests.support.past_world import PARTITIONS, TOKEN, World, run, running_world
from tests.support.waiting import until


@pytest.fixture
def world(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[World]:
    with running_world(make_app, monkeypatch, tmp_path) as made:
        yield made


@pytest.mark.parametrize("point", ["past.stopped", "past.claimed"])
def test_the_command_is_killed_and_run_again(world: World, point: str) -> None:
    then = world.commits(range(2))
    to = world.savepoint()
    now = world.commits(range(2, 4))
    words = ["restore", "run", world.app.name, "--to", to, "--yes"]
    killed = subprocess.run(
        [str(Path(sys.executable).with_name("holdfast")), *words],
        env={**os.environ, "HOLDFAST_FAILPOINTS": f"{point}=kill"},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert world.digests() == now
    run(*words[1:])
    assert world.digests() == then


def test_a_host_is_restarted_on_the_way(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends what was begun by itself; a driver that claims meanwhile waits for it."""
    app = world.app.name
    then = world.commits(range(2))
    to = world.savepoint()
    now = world.commits(range(2, 8))
    stop = threading.Event()
    with monkeypatch.context() as patched:

        def fails(name: str) -> None:
            if name == "past.before_marker" and not stop.is_set():
                raise Unavailable("the host is on its knees")

        patched.setattr("state_lib.task.rewriting.failpoint", fails)
        _, err = run("run", app, "--to", to, "--yes", code=1)
        assert "on its knees" in err
        address_ = owner_of(app, 0, world.settings.host_addresses)
        client = FlightHostClient(address_, TOKEN)
        with pytest.raises(Unavailable, match="restored to the past") as refused:
            client.marker(app, 0)
        client.close()
        assert refused.value.details["past"]
        assert world.managers[address_.id].state_of(world.managers[address_.id].tasks[app, 0]) == (
            "restoring"
        )
        threading.Timer(1.0, stop.set).start()
        markers = world.claim("next", timeout_s=0)
    assert [m.positions for m in markers] == [world.at(2)] * PARTITIONS
    assert world.digests() == then
    assert world.commits(range(2, 8)) == now


def test_what_a_task_is_on_its_way_to_is_not_pruned(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, wanted = world.app.name, []
    for number in range(3):
        world.commits([number])
        wanted.append(world.snapshot(1))
    prune = ["snapshot", "prune", app, "--keep", "1", "--dry-run", "--json"]

    def kept() -> list[str]:
        tasks = orjson.loads(CliRunner().invoke(command, prune).stdout)["tasks"]
        return [s for task in tasks for s in task["kept"]]

    assert kept() == wanted[2:]
    with monkeypatch.context() as patched:

        def fails(name: str) -> None:
            if name == "past.before_marker":
                raise Unavailable("on its knees")

        patched.setattr("state_lib.task.rewriting.failpoint", fails)
        run("run", app, "--to", wanted[0], "--task", "1", "--yes", code=1)
        assert sorted(kept()) == [wanted[0], wanted[2]]
    until(lambda: not world.manager(1).not_ready, 60)
    assert kept() == wanted[2:]


def test_what_a_task_sets_out_to_while_snapshots_are_pruned_is_put_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, wanted = world.app.name, []
    for number in range(2):
        world.commits([number])
        wanted.append(world.snapshot(1))
    with monkeypatch.context() as patched:

        def fails(name: str) -> None:
            if name == "past.before_marker":
                raise Unavailable("on its knees")

        def sets_out(_name: str) -> None:
            patched.setattr("state_lib.snapshots.prune.failpoint", lambda _: None)
            run("run", app, "--to", wanted[0], "--task", "1", "--yes", code=1)

        patched.setattr("state_lib.task.rewriting.failpoint", fails)
        patched.setattr("state_lib.snapshots.prune.failpoint", sets_out)
        done = prune_application(world.settings, app, Retention(1))
        (one,) = [task for task in done.tasks if task.task == f"{app}/1"]
        assert (sorted(one.kept), one.pruned) == (wanted, [])
        listed = list_snapshots(world.settings.snapshots_url, app, 1)
        assert [m.id for m in listed] == wanted[::-1]
    until(lambda: not world.manager(1).not_ready, 60)
