"""``holdfast restore … --to`` over two hosts: a driver that ends, and one that comes after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest
from confluent_kafka import TopicPartition
from typer.testing import CliRunner

from state_lib.cli import app as command
from state_lib.drivers.identity import Identity
from state_lib.drivers.members import living_drivers
from state_lib.drivers.presence import Presence
from state_lib.errors import Realign, Superseded
from state_lib.kafka import describe
from state_lib.protocol.marker import now_ms
from tests.integration.conftest import MakeApp
from tests.support.past import ROWS
from tests.support.past_world import PARTITIONS, World, run, running_world
from tests.support.waiting import until


@pytest.fixture
def world(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[World]:
    with running_world(make_app, monkeypatch, tmp_path) as made:
        yield made


def test_an_application_goes_back_and_its_driver_is_followed(world: World) -> None:
    app = world.app.name
    then = world.commits(range(3))
    to = world.savepoint()
    now = world.commits(range(3, 9))
    with world.driver() as heard:
        until(lambda: orjson.loads(run("plan", app, "--to", to, "--json")[0])["drivers"], 60)
        shown = orjson.loads(run("plan", app, "--to", to, "--json")[0])
        assert (shown["app"], shown["drivers"]) == (app, ["one"])
        assert [p["records"] for p in shown["plans"]] == [60] * PARTITIONS
        assert all(0 < p["needed_bytes"] < p["free_bytes"] for p in shown["plans"])
        assert all(p["seconds"] > 0 for p in shown["plans"])
        out, _ = run("run", app, "--to", to, says="n\n", code=1)
        assert "driver one ends" in out
        assert "seconds" in out
        assert f"{app}/2: disk: at most about" in out
        assert f"{app}/2 loses the state of commit" in out
        assert world.digests() == now
        assert heard == [], "nothing was done"
        out, _ = run("run", app, "--to", to, "--yes")
    assert heard == ["a restore to the past was asked for"]
    assert "ended at a batch's edge: one" in out
    assert out.count("is back, at epoch") == PARTITIONS
    assert world.digests() == then
    markers = [task.marker for task in world.tasks]
    assert len({(m.epoch, m.batch_number) for m in markers}) == 1
    assert world.claim("two")[0].positions == markers[0].positions
    assert world.commits(range(3, 9)) == now
    shown = orjson.loads(run("plan", app, "--to", to, "--json")[0])
    assert [p["batches"] for p in shown["plans"]] == [6] * PARTITIONS


def test_one_task_goes_back_and_events_are_told(world: World) -> None:
    app = world.app.name
    then = world.commits(range(2))
    to = world.snapshot(1)
    now = world.commits(range(2, 5))
    for words in (["--to", to], ["--to", to, "--task", "0"]):
        _, err = run("plan", app, *words, code=1)
        assert "--task 1" in err
    out, _ = run("run", app, "--to", to, "--task", "1", "--yes", "--json")
    events = [orjson.loads(line) for line in out.splitlines()]
    assert {e["event"] for e in events} == {"fetch", "start", "batch", "end", "done", "told"}
    done = [e for e in events if e["event"] == "done" and "marker" in e]
    assert [e["task"] for e in done] == [f"{app}/1"]
    assert world.digests() == [now[0], then[1], now[2]]
    world.claim()
    assert world.commits(range(2, 5), [1]) == now
    out, _ = run("run", app, "--to", world.snapshot(1), "--task", "1")
    assert "nothing to do: 1 tasks" in out


def test_to_a_time(world: World) -> None:
    app = world.app.name
    then = world.commits(range(2))
    world.savepoint()
    at = max(task.marker.written_at for task in world.tasks)
    until(lambda: now_ms() > at + 5)
    now = world.commits(range(2, 4))
    world.savepoint()
    for to, says in (
        (str(now_ms() + 60_000), "in the future"),
        (str(at - 3_600_000), "the oldest one is of a commit of"),
        ("yesterday", "neither the id"),
        ("20200101T000000000Z-00000000", "no snapshot or savepoint"),
    ):
        for what in ("plan", "run"):
            assert says in run(what, app, "--to", to, code=1)[1]
    assert world.digests() == now
    run("run", app, "--to", str(at), "--yes")
    assert world.digests() == then


@pytest.mark.parametrize("again", [False, True], ids=["", "republish"])
def test_the_wish_to_write_outputs_again_reaches_every_task(world: World, again: bool) -> None:
    app = world.app.name
    then = world.commits(range(2))
    to = world.savepoint()
    now = world.commits(range(2, 4))
    words = ["run", app, "--to", to, *(["--republish"] if again else [])]
    run(*words, "--yes")
    assert world.digests() == then
    for task in world.tasks:
        assert task.marker.back["republish"] is again
        assert task.marker.published.get("again", False) is again
    assert "nothing to do" in run(*words, "--yes")[0], "it has gone back so already"
    world.claim()
    assert world.commits(range(2, 4)) == now


def test_what_cannot_be_read_again_is_refused_before_the_driver_ends(world: World) -> None:
    app = world.app.name
    world.commits(range(2))
    to = world.savepoint()
    now = world.commits(range(2, 4))
    gone = TopicPartition(world.source, 0, 2 * ROWS + 1)
    for future in world.app.kafka.admin().delete_records([gone]).values():
        future.result()
    with living(world) as heard:
        for what in ("plan", "run"):
            _, err = run(what, app, "--to", to, code=1)
            assert f"{world.source}/0 holds offsets [21, 200)" in err
        assert living_drivers(world.app.kafka, app) == ("one",)
    unchanged(world, heard, now)


def test_a_disk_that_is_too_small_is_seen_before_the_driver_ends(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = world.app.name
    then = world.commits(range(2))
    to = world.savepoint()
    now = world.commits(range(2, 4))
    with living(world) as heard:
        with monkeypatch.context() as full:
            full.setattr("state_lib.snapshots.fetch.MIN_FREE_BYTES", 1 << 60)
            _, err = run("run", app, "--to", to, "--yes", code=1)
        assert "MiB free, snapshot " in err
        assert "free space, then try again" in err
        assert living_drivers(world.app.kafka, app) == ("one",)
    unchanged(world, heard, now)
    run("run", app, "--to", to, "--yes")
    assert world.digests() == then, "with room it goes"


@contextmanager
def living(world: World) -> Iterator[list[str]]:
    """A driver that is seen to live; what it heard."""
    with world.driver() as heard:
        until(lambda: living_drivers(world.app.kafka, world.app.name), 60, "a living driver")
        yield heard


def unchanged(world: World, heard: list[str], now: object) -> None:
    """Nobody was asked to end, and no task has moved."""
    assert heard == []
    assert world.digests() == now
    assert {task.marker.epoch for task in world.tasks} == {world.epoch}
    world.commits([4])


def test_options_that_do_not_go_together(world: World) -> None:
    app = world.app.name
    assert "leave one" in run("plan", app, "--to", "1", "--from", "local", code=1)[1]
    assert "without --to" in run("run", app, "--republish", code=1)[1]
    assert "tasks 0 to 2" in run("plan", app, "--to", "1", "--task", "9", code=1)[1]


def test_other_code_may_not_finish_what_only_some_repeat(world: World) -> None:
    app = world.app.name
    world.commits(range(2))
    one, all_ = world.snapshot(1), world.savepoint()
    world.commits(range(2, 4))
    world.code = "edited"
    world.claim()
    _, err = run("run", app, "--to", one, "--task", "1", "--yes", code=1)
    assert "code, the job is edited now" in err
    run("run", app, "--to", all_, "--yes")


def test_a_driver_that_does_not_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("state_lib.apps.past._ENDING_S", 1.0)
    monkeypatch.setenv("HOLDFAST_STOP_TIMEOUT_S", "1")
    world.commits(range(2))
    to = world.savepoint()
    now = world.commits(range(2, 4))
    presence = Presence(world.app.kafka, world.app.name, Identity("deaf", "here", 1, ""))
    presence.join()
    try:
        until(lambda: '"deaf"' in run("plan", world.app.name, "--to", to, "--json")[0], 60)
        _, err = run("run", world.app.name, "--to", to, "--yes", code=1)
    finally:
        presence.leave("stopped", "", retry=False)
    assert "driver deaf" in err
    assert "nothing was changed" in err
    assert world.digests() == now


def test_a_driver_that_claims_in_between(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    then = world.commits(range(2))
    to = world.savepoint()
    world.commits(range(2, 4))
    claimed: list[int] = []

    def claims(name: str) -> None:
        if name == "past.claimed" and not claimed:
            claimed.append(world.epoch)
            world.claim("quick")

    monkeypatch.setattr("state_lib.apps.past.failpoint", claims)
    out, _ = run("run", world.app.name, "--to", to, "--yes")
    assert "a driver has claimed tasks [0, 1, 2] meanwhile: once more" in out
    assert world.digests() == then
    with pytest.raises(Realign, match="restore to the past"):  # its driver claims anew
        world.tasks[0].claim(world.app.topology, world.epoch)
    with pytest.raises(Superseded):
        world.tasks[0].claim(world.app.topology, claimed[0])

    world.claim()
    world.commits(range(2, 4))
    monkeypatch.setattr("state_lib.apps.past.failpoint", lambda name: name and world.claim("again"))
    _, err = run("run", world.app.name, "--to", to, "--yes", code=1)
    assert "a driver has claimed them each time" in err


def test_another_restore_comes_in_between(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.commits(range(2))
    to = world.savepoint()
    world.commits(range(2, 4))
    later = world.savepoint()
    now = world.digests()
    world.commits(range(4, 6))
    once: list[str] = []

    def goes_elsewhere(name: str) -> None:
        if name == "past.claimed" and not once:
            once.append(name)
            run("run", world.app.name, "--to", later, "--yes")

    monkeypatch.setattr("state_lib.apps.past.failpoint", goes_elsewhere)
    _, err = run("run", world.app.name, "--to", to, "--yes", code=1)
    assert "another restore to the past" in err
    assert world.digests() == now


def test_a_lost_topology_topic_is_not_suspected(world: World) -> None:
    """Tasks stand at an epoch that no driver has claimed; `holdfast repair topology` knows why."""
    world.commits(range(2))
    to = world.savepoint()
    world.commits(range(2, 4))
    run("run", world.app.name, "--to", to, "--yes")
    done = CliRunner().invoke(command, ["repair", "topology", world.app.name])
    assert done.exit_code == 0, done.output
    assert "nothing" in done.output
    assert describe(world.app.kafka.admin(), [f"{world.app.name}-topology"])
