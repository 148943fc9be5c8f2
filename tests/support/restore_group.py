"""Two hosts that leave lost stores to Airflow, and ways to lose and to damage them."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from airflow.models.trigger import Trigger
from airflow.triggers.base import BaseTrigger, TriggerEvent

from holdfast_airflow.triggers.restore import RestoreTrigger
from state_lib.apps.restoring import ask_plans
from state_lib.client.http import HostHttp
from state_lib.config import Settings
from state_lib.digests.live import live_digests
from state_lib.errors import Busy, HoldfastError
from state_lib.kafka import Kafka
from state_lib.protocol.placement import owner_of
from state_lib.restore.plan import RestorePlan
from state_lib.specs import Topology
from state_lib.stack.ports import free_port
from tests.support.apps import KV, SOURCE, WIN, App
from tests.support.dripping import dripping
from tests.support.environment import set_environment
from tests.support.host_process import TOKEN, Hosts
from tests.support.hosts import publish
from tests.support.waiting import SLOWNESS, until

CONN, PARTITIONS, ROWS = "holdfast_default", 2, 3000
NOWHERE = "MANIFEST-999999\n"


def led_nowhere(folder: Path) -> dict[Path, bytes]:
    """What a directory has its other files by; returns what was written."""
    (folder / "CURRENT").write_text(NOWHERE)
    return {folder / "CURRENT": NOWHERE.encode()}


def zeroed(folder: Path) -> dict[Path, bytes]:
    """All SST files, as by a bad disk; returns what was written."""
    written = {file: bytes(file.stat().st_size) for file in folder.glob("*.sst")}
    for file, zeros in written.items():
        file.write_bytes(zeros)
    assert written
    return written


class Group(Hosts):
    """Two hosts that leave lost stores alone, with something in each task."""

    n = 0

    def fill(self) -> None:
        """One more batch for every task: overwrites, new keys."""
        self.n += 1
        for partition in range(PARTITIONS):
            rows = {f"{i}".encode(): f"{self.n} {i}".encode() for i in range(ROWS)}
            self.commit(self.n, rows, partition)

    def owner(self, partition: int) -> str:
        return owner_of(self.app.name, partition, self.settings.host_addresses).id

    def directory(self, partition: int) -> Path:
        return self.state(self.owner(partition)) / str(partition)

    def kill(self, partition: int) -> None:
        process = self.processes[self.owner(partition)]
        process.kill()
        process.wait()

    def seen(self, partition: int) -> dict[str, Any]:
        """The task as its host lists it; nothing while the host does not answer."""
        address = owner_of(self.app.name, partition, self.settings.host_addresses)
        with closing(HostHttp(address, TOKEN, 5.0)) as http:
            try:
                tasks = http.get(f"/v1/apps/{self.app.name}/stores", patient=False)["tasks"]
            except HoldfastError:
                return {}
        return next(one for one in tasks if one["partition"] == partition)

    def is_(self, state: str, partition: int) -> None:
        """Wait until a task is in a state."""
        until(lambda: self.seen(partition).get("state") == state, 90, state)

    def lose(self, partition: int = 0) -> None:  # type: ignore[override]
        """SIGKILL its host, remove a task's directory, start the host."""
        self.kill(partition)
        shutil.rmtree(self.directory(partition))
        self.launch()
        self.is_("quarantined", partition)

    def corrupt(
        self, partition: int = 0, damage: Callable[[Path], dict[Path, bytes]] = led_nowhere
    ) -> dict[Path, bytes]:
        """Its host ends, and flushes; the directory is there and cannot be opened.

        Returns what was damaged.
        """
        process = self.processes[self.owner(partition)]
        process.terminate()
        process.wait(60 * SLOWNESS)
        damaged = damage(self.directory(partition))
        self.launch()
        self.is_("quarantined", partition)
        return damaged

    def digests(self) -> dict[str, str]:
        """Of all tasks' stores."""
        hosts = self.settings.host_addresses
        found = live_digests(self.app.topology, hosts, TOKEN)
        assert not found.failed
        return {
            f"{t.partition} {name}": str(d) for t in found.tasks for name, d in t.stores.items()
        }

    def plan(self, partition: int = 0, source: str | None = None) -> RestorePlan:
        return ask_plans(self.settings, self.app.name, [partition], source)[0]

    def planned(self, partition: int) -> RestorePlan | None:
        """Its plan; nothing while it is just tried to be opened."""
        try:
            return self.plan(partition)
        except Busy:
            return None

    def rebuilt(self, partition: int) -> int:
        """How often its host has built a directory of the task since it was started last."""
        lines = (self.app.root / f"{self.owner(partition)}.log").read_text().splitlines()
        starts = [i for i, line in enumerate(lines) if '"host is up"' in line]
        name = f'"task": "{self.app.name}/{partition}"'
        return sum(name in one and '"rebuilt"' in one for one in lines[starts[-1] :])

    def restored(self, partition: int = 0) -> dict[str, Any] | None:
        """The last restore that its host was asked for."""
        address = owner_of(self.app.name, partition, self.settings.host_addresses)
        path = f"/v1/apps/{self.app.name}/tasks/{partition}/restore"
        with closing(HostHttp(address, TOKEN, 5.0)) as http:
            try:
                return http.get(path, patient=False)
            except HoldfastError:
                return None


@contextmanager
def running_group(settings: Settings, name: str, root: Path) -> Iterator[Group]:
    """Of an application that no other file has: one may leave what the others must not find."""
    kafka = Kafka.of(settings)
    topology = Topology(name, PARTITIONS, (KV, WIN), (), (SOURCE,))
    app = App(kafka, topology, root)
    app.create()
    made = Group(app, 2, restore_mode="orchestrated", flush_interval_s=1.0)
    try:
        made.start(publish(app, made.settings.host_addresses))
        yield made
    finally:
        made.stop()


def made_whole(
    running: Group, connect: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> Group:
    """All tasks open and filled; this process' settings are those of Airflow's workers."""
    set_environment(monkeypatch, running.settings)
    monkeypatch.delenv("HOLDFAST_TOKEN")
    running.armed.write_text("")
    connect(
        running.settings.bootstrap_servers,
        CONN,
        conn_type="holdfast",
        password=TOKEN,
        extra={"hosts": running.settings.hosts},
    )
    running.launch()
    for partition in range(PARTITIONS):
        until(lambda p=partition: running.seen(p), 90)  # type: ignore[misc]
        if running.seen(partition)["state"] == "quarantined":
            plan = until(lambda p=partition: running.planned(p), 60)  # type: ignore[misc]
            asyncio.run(first(RestoreTrigger(running.app.name, [plan.to_json()])))
        running.is_("open", partition)
    running.fill()
    return running


async def first(trigger: BaseTrigger) -> dict[str, Any]:
    """The event of a trigger, as it comes out of Airflow's database."""
    path, kwargs = trigger.serialize()
    assert path == f"{type(trigger).__module__}.{type(trigger).__qualname__}"
    stored = Trigger._decrypt_kwargs(Trigger.encrypt_kwargs(kwargs))
    assert stored == kwargs
    async for event in type(trigger)(**stored).run():
        assert isinstance(event, TriggerEvent)
        payload: dict[str, Any] = event.payload
        return payload
    raise AssertionError("the trigger ended without an event")


@contextmanager
def badly_answered(group: Group, how: str) -> Iterator[str]:
    """Hosts as a setting, where nobody answers well for the owner of task 0."""
    flight, http = free_port(), free_port()
    with ExitStack() as stack:
        if how == "silent":
            stack.enter_context(closing(socket.create_server(("127.0.0.1", http))))
        elif how == "slow":
            http = stack.enter_context(dripping())
        hosts = group.settings.host_addresses
        known = {a.id: f"{a.host}:{a.flight_port}/{a.http_port}" for a in hosts}
        known[group.owner(0)] = f"127.0.0.1:{flight}/{http}"
        yield ",".join(f"{host}={at}" for host, at in known.items())
