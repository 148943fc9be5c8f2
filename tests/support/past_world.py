"""Three tasks on two hosts, their batches as a driver makes them, and ``holdfast restore``."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic
from typer.testing import CliRunner

from state_lib.changelog.admin import _await
from state_lib.changelog.progress import ProgressLog
from state_lib.changelog.topics import TopicPlan
from state_lib.cli import app as command
from state_lib.client.snapshots import SnapshotClient
from state_lib.config import Settings
from state_lib.driver.claims import Claimant, write_claim
from state_lib.driver.epochs import new_epoch, topology_id
from state_lib.drivers.control import Control
from state_lib.drivers.identity import Identity
from state_lib.drivers.presence import Presence
from state_lib.host.tasks import TaskManager
from state_lib.protocol.marker import Marker, now_ms
from state_lib.protocol.placement import owner_of
from state_lib.protocol.positions import Positions
from state_lib.restore.options import RestoreOptions
from state_lib.stores.digest import StoreDigest
from state_lib.task import StateTask
from tests.integration.conftest import MakeApp
from tests.support.apps import HOUR, KV, NOON, WIN, App, batch, digests, kv, win
from tests.support.environment import set_environment
from tests.support.hosts import address, served
from tests.support.past import ROWS, fill

PARTITIONS, TOKEN = 3, "only-for-tests"


class World:
    """One application of which every batch can be made again."""

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
        from_ = Positions() if number < 0 else self.at(number)
        clock = NOON + number * HOUR
        again = number in self.recorded
        first = self.recorded.get(number, -1)
        record = {
            "epoch": self.epoch, "n": number + 2,
            "from": from_.to_json(), "to": self.at(number + 1).to_json(),
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
            header = replace(one.header, from_=from_, to=self.at(number + 1), recorded=offset)
            task.commit(replace(one, header=header))

    def at(self, number: int) -> Positions:
        return Positions({(self.source, 0): number * ROWS})

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


@contextmanager
def running_world(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> Iterator[World]:
    """Started, and what this process's settings name; nothing of its environment counts."""
    app = make_app([KV, WIN])
    app.topology = replace(app.topology, app=f"{app.name}-p", partitions=PARTITIONS)
    app.create()
    source = f"{app.name}-source"
    app.kafka.admin().create_topics([NewTopic(source, 1, 1)])[source].result()
    _await(app.kafka.admin(), [TopicPlan(source, 1)])
    fill(app, source, 200)
    monkeypatch.chdir(folder)
    for name in [n for n in os.environ if n.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "300")
    with ExitStack() as stack:
        made = World(app, stack)
        set_environment(monkeypatch, made.settings)
        yield made


def run(*words: str, code: int = 0, says: str = "") -> tuple[str, str]:
    """``holdfast restore``, in this process; what it wrote to both outputs."""
    done = CliRunner().invoke(command, ["restore", *words], input=says)
    assert done.exit_code == code, done.output
    return done.stdout, done.stderr
