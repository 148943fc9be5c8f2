"""``holdfast restore … --to`` over two hosts: a driver that ends, and one that comes after it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka.admin import NewTopic
from typer.testing import CliRunner

from state_lib.apps.pruning import prune_application
from state_lib.changelog.admin import _await
from state_lib.changelog.progress import ProgressLog
from state_lib.changelog.topics import TopicPlan
from state_lib.cli import app as command
from state_lib.client.flight import FlightHostClient
from state_lib.client.snapshots import SnapshotClient
from state_lib.config import Settings
from state_lib.drivers.control import Control
from state_lib.drivers.identity import Identity
from state_lib.drivers.presence import Presence
from state_lib.errors import Realign, Superseded, Unavailable
from state_lib.host.placement import owner_of
from state_lib.host.tasks import TaskManager
from state_lib.kafka import describe
from state_lib.marker import Marker, nested, now_ms
from state_lib.restore.options import RestoreOptions
from state_lib.snapshots.listing import list_snapshots
from state_lib.snapshots.prune import Retention
from state_lib.spark.claims import Claimant, write_claim
from state_lib.spark.epochs import new_epoch, topology_id
from state_lib.stores.digest import StoreDigest
from state_lib.task import StateTask
from tests.integration.conftest import MakeApp
from tests.support.apps import HOUR, KV, NOON, WIN, App, batch, digests, kv, win
from tests.support.hosts import address, served
from tests.support.past import ROWS, fill
from tests.support.waiting import until

PARTITIONS, TOKEN = 3, "only-for-tests"


class World:
    """Three tasks on two hosts; batches as a driver makes them."""

    def __init__(self, app: App, stack: ExitStack) -> None:
        self.app, self.source = app, f"{app.name}-source"
        hosts = [address("host-1"), address("host-2")]
        self.settings = Settings.load(
            home=app.root,
            bootstrap_servers=str(app.kafka.properties["bootstrap.servers"]),
            hosts=",".join(f"{a.id}={a.host}:{a.flight_port}/{a.http_port}" for a in hosts),
            token=TOKEN,
            stop_timeout_s=5,
        )
        options = RestoreOptions("auto", self.settings.snapshots_url)
        self.managers: Mapping[str, TaskManager] = {
            at.id: stack.enter_context(served(app, at, TOKEN, hosts, restore=options))
            for at in hosts
        }
        self.log = ProgressLog(app.kafka, app.name)
        self.code, self.recorded = "code", dict[int, int]()
        self.claim()
        self.commits([-1])

    def manager(self, partition: int) -> TaskManager:
        return self.managers[owner_of(self.app.name, partition, self.settings.host_addresses).id]

    @property
    def tasks(self) -> list[StateTask]:
        return [self.manager(p).task(self.app.name, p) for p in range(PARTITIONS)]

    def claim(self, who: str = "one", timeout_s: float = 30) -> list[Marker]:
        """As a driver does; it waits for tasks that are on their way."""
        identity = Identity(who, "here", os.getpid(), "")
        hosts = tuple(self.settings.host_addresses)
        epoch = new_epoch(
            self.app.kafka,
            self.app.name,
            lambda: write_claim(self.app.kafka, self.app.topology, identity, self.code, hosts),
            topology_id(self.app.kafka, self.app.name),
        )
        self.epoch = epoch.number
        return Claimant(self.app.topology, epoch, hosts, TOKEN, lambda: False).all(
            timeout_s, lambda _: {}
        )

    def commits(self, numbers: Any, tasks: Any = range(PARTITIONS)) -> list[dict[str, StoreDigest]]:
        """Batches, the same each time; -1 resolves positions."""
        for number in numbers:
            self._commit(number, tasks)
        return self.digests()

    def digests(self) -> list[dict[str, StoreDigest]]:
        return [digests(task) for task in self.tasks]

    def _commit(self, number: int, tasks: Any) -> None:
        from_: Any = {} if number < 0 else self._at(number)
        clock = NOON + number * HOUR
        again = number in self.recorded
        first = self.recorded.get(number, -1)
        record = {
            "epoch": self.epoch, "n": number + 2, "from": from_, "to": self._at(number + 1),
            "clock": clock, "now": now_ms(), "max_future_ms": 1, "code": self.code, "limits": {},
            "tasks": list(tasks) if again else None, "recorded": first,
        }  # fmt: skip
        offset = self.log.append(record)
        offset = self.recorded[number] = first if again else offset
        for p in tasks:
            task = self.manager(p).task(self.app.name, p)
            puts = {
                "kv": kv((f"k{number % 4}", f"{number}.{p}"), (f"k{number % 3}", None)),
                "win": win(("w", NOON + number * HOUR, f"{number}.{p}")),
            }
            one = batch(task.marker, {} if number < 0 else puts, clock=clock)
            header = replace(one.header, from_=from_, to=self._at(number + 1), recorded=offset)
            task.commit(replace(one, header=header))

    def _at(self, number: int) -> Any:
        return nested({(self.source, 0): number * ROWS})

    def savepoint(self) -> str:
        return SnapshotClient(self.settings, self.app.name).savepoint().id

    def snapshot(self, partition: int) -> str:
        (job,) = SnapshotClient(self.settings, self.app.name).create([partition])
        assert job["error"] is None, job
        return str(job["snapshot"])

    @contextmanager
    def driver(self, who: str = "one") -> Iterator[list[str]]:
        """One that lives, and ends when it is asked to; what it heard."""
        identity, heard = Identity(who, "here", os.getpid(), ""), list[str]()
        presence = Presence(self.app.kafka, self.app.name, identity)
        control = Control(self.app.kafka, self.app.name, identity)
        control.begin()
        presence.join()
        over = threading.Event()

        def live() -> None:
            while not over.wait(0.1):
                if why := control.heed(None):
                    heard.append(why)
                    presence.leave("stopped", why, retry=False, handover=control.handover)
                    return

        thread = threading.Thread(target=live)
        thread.start()
        try:
            yield heard
        finally:
            over.set()
            thread.join()
            presence.leave("stopped", "the test is over", retry=False)


@pytest.fixture
def world(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[World]:
    app = make_app([KV, WIN])
    app.topology = replace(app.topology, app=f"{app.name}-p", partitions=PARTITIONS)
    app.create()
    source = f"{app.name}-source"
    app.kafka.admin().create_topics([NewTopic(source, 1, 1)])[source].result()
    _await(app.kafka.admin(), [TopicPlan(source, 1)])
    fill(app, source, 200)
    monkeypatch.chdir(tmp_path)
    for name in [n for n in os.environ if n.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "300")
    with ExitStack() as stack:
        made = World(app, stack)
        for name, value in made.settings.as_environment().items():
            monkeypatch.setenv(name, value)
        yield made


def run(*words: str, code: int = 0, says: str = "") -> tuple[str, str]:
    done = CliRunner().invoke(command, ["restore", *words], input=says)
    assert done.exit_code == code, done.output
    return done.stdout, done.stderr


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
        out, _ = run("run", app, "--to", to, says="n\n", code=1)
        assert "driver one ends" in out
        assert f"{app}/2 loses the state of commit" in out
        assert world.digests() == now
        assert heard == [], "nothing was done"
        out, _ = run("run", app, "--to", to, "--yes")
    assert heard == ["a restore to the past was asked for"]
    assert "ended at a batch's edge: one" in out
    assert out.count("is back, at epoch") == PARTITIONS
    assert world.digests() == then
    markers = [task.marker for task in world.tasks]
    assert len({(m.epoch, m.n) for m in markers}) == 1
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


@pytest.mark.parametrize("point", ["past.stopped", "past.claimed"])
def test_the_command_is_killed_and_run_again(world: World, point: str) -> None:
    then = world.commits(range(2))
    to = world.savepoint()
    now = world.commits(range(2, 4))
    words = ["restore", "run", world.app.name, "--to", to, "--yes"]
    killed = subprocess.run(
        [str(Path(sys.executable).with_name("holdfast")), *words],
        env={**os.environ, "HOLDFAST_FAILPOINTS": f"{point}=kill"},
        cwd=Path(__file__).parents[2],
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
    assert [m.positions for m in markers] == [world._at(2)] * PARTITIONS
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
