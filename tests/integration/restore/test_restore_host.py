"""Restores on a host: over Flight, by the command, in listings, metrics and `<app>-progress`."""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from state_lib.apps.restore_watch import RestoreWatch
from state_lib.changelog.progress import ProgressLog
from state_lib.changelog.topics import progress_topic
from state_lib.cli import app as command
from state_lib.client.flight import FlightHostClient
from state_lib.config import Settings
from state_lib.errors import Busy, InvalidRequest, NotFound, NotOwner, Quarantined
from state_lib.host.flight import FlightHost
from state_lib.host.http import HttpServer
from state_lib.host.http.routes import _task
from state_lib.host.metrics import HostMetrics
from state_lib.host.restore_records import RestoreRecords
from state_lib.host.snapshots import SnapshotJobs
from state_lib.host.tasks import TaskManager
from state_lib.protocol.addresses import HostAddress
from state_lib.protocol.placement import owner_of
from state_lib.restore.listener import Several
from state_lib.restore.options import RestoreOptions
from state_lib.restore.plan import CHANGELOG, RestorePlan
from tests.integration.conftest import MakeApp
from tests.support.apps import KV, App, batch, digests, kv
from tests.support.fold import committed
from tests.support.held import HeldReplay
from tests.support.hosts import address, claim, publish
from tests.support.waiting import SLOWNESS, until

PARTITIONS = 2


class Host:
    """One host with two claimed tasks; lost stores wait for a decision."""

    def __init__(self, app: App, at: HostAddress) -> None:
        self.app, self.at = app, at
        self.snapshots_url: str | None = None
        """Where restores look for snapshots, from the next start on; they are taken anyhow."""
        self.metrics = HostMetrics()
        self.manager: TaskManager
        self.server: FlightHost

    def start(self) -> None:
        context = replace(
            self.app.context(self.at.id),
            listener=Several(self.metrics, RestoreRecords(self.app.kafka, self.at.id)),
            restore=RestoreOptions(mode="orchestrated", snapshots_url=self.snapshots_url),
        )
        self.manager = TaskManager(context, [self.at], 60.0)
        self.manager.start()
        self.jobs = SnapshotJobs(self.manager, self.storage)
        self.server = FlightHost(self.manager, self.at.flight_url, None, self.jobs)

    @property
    def storage(self) -> str:
        """Where snapshots are written to."""
        return (self.app.root / "snapshots").as_uri()

    def stop(self) -> None:
        self.server.shutdown()
        self.manager.stop()

    def lose(self, partition: int) -> None:
        """A task's directory, while the host is down."""
        self.stop()
        shutil.rmtree(self.manager.tasks[self.app.name, partition].path)
        self.start()
        until(lambda: f"{self.app.name}/{partition}" in self.manager.openers.quarantined, 60)

    def metric(self, name: str, task: str) -> float | None:
        labels = {"app": self.app.name, "task": task, "store": "kv"}
        return self.metrics.registry.get_sample_value(name, labels)

    def phases(self, task: str) -> list[str]:
        """Of a task's restores, as the progress topic keeps them."""
        servers = str(self.app.kafka.properties["bootstrap.servers"])
        topic = progress_topic(self.app.name)
        records = [orjson.loads(m.value() or b"") for m in committed(servers, topic)]
        kept = [r for r in records if r["task"] == task]
        assert all(r["kind"] == "restore" and r["host"] == self.at.id for r in kept)
        return [r["phase"] for r in kept]


@pytest.fixture
def host(make_app: MakeApp) -> Iterator[Host]:
    with hosted(make_app([KV]), PARTITIONS) as found:
        yield found


@contextmanager
def hosted(app: App, partitions: int) -> Iterator[Host]:
    """A host with something in each task."""
    app.topology = replace(app.topology, app=f"{app.name}-p", partitions=partitions)
    app.create()
    found = Host(app, address())
    found.start()
    try:
        epoch = publish(app)
        for partition in range(partitions):
            claim(found.manager, app, epoch, partition)
            task = found.manager.task(app.name, partition)
            task.commit(batch(task.marker, {"kv": kv(("a", f"{partition}"), ("b", "2"))}))
        yield found
    finally:
        found.stop()


@pytest.fixture
def shell(host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CliRunner:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("HOLDFAST_"):
            monkeypatch.delenv(name)
    at = host.at
    servers = str(host.app.kafka.properties["bootstrap.servers"])
    monkeypatch.setenv("HOLDFAST_BOOTSTRAP_SERVERS", servers)
    monkeypatch.setenv("HOLDFAST_HOSTS", f"{at.id}={at.host}:{at.flight_port}/{at.http_port}")
    monkeypatch.setenv("COLUMNS", "200")
    return CliRunner()


def test_a_lost_task_is_reported_and_restored_while_others_go_on(
    host: Host, shell: CliRunner
) -> None:
    app = host.app
    name = f"{app.name}/1"
    before = digests(host.manager.task(app.name, 1))
    host.lose(1)
    until(lambda: list(host.manager.not_ready) == [name], 60)
    assert "holdfast restore plan" in host.manager.not_ready[name]
    with pytest.raises(Quarantined):
        host.manager.task(app.name, 1)
    with closing(FlightHostClient(host.at, None)) as client, pytest.raises(Quarantined):
        client.marker(app.name, 1)
    lost = host.manager.tasks[app.name, 1]
    assert _task(host.manager, lost, "why")["state"] == "quarantined"
    other = host.manager.task(app.name, 0)
    assert other.commit(batch(other.marker, {"kv": kv(("c", "3"))})).batch_number == 2

    shown = shell.invoke(command, ["restore", "plan", app.name])
    assert shown.exit_code == 0, shown.output
    assert f"{name}: from changelog" in shown.stdout
    assert "there is no directory" in shown.stdout
    assert f"{app.name}/0: nothing to restore" in shown.stdout
    plans = orjson.loads(shell.invoke(command, ["restore", "plan", app.name, "--json"]).stdout)
    assert [p["source"] for p in plans] == ["local", "changelog"]

    done = shell.invoke(command, ["restore", "run", app.name])
    assert done.exit_code == 0, done.output
    assert re.search(rf"{name} .* 2 records, [\d,]+/s", done.output), "a bar for each task"
    assert f"{app.name}/0 " not in done.output, "and none for one that stands where it should"
    assert digests(host.manager.task(app.name, 1)) == before
    assert host.manager.openers.quarantined == {}
    assert host.manager.not_ready == {}
    again = shell.invoke(command, ["restore", "run", app.name])
    assert "nothing to restore" in again.stdout

    assert host.metric("holdfast_restore_total", name) == 2
    assert host.metric("holdfast_restore_remaining_records_total", name) == 0
    assert host.metric("holdfast_restore_rate", name) == 0
    until(lambda: host.phases(name)[-1:] == ["end"], 60)
    assert "start" in host.phases(name)
    assert ProgressLog(app.kafka, app.name).read() == [], "they are no batches"


def test_a_restore_from_a_snapshot_tells_how_far_it_is(
    host: Host, shell: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one that fails tells that."""
    app, name, partition = host.app, f"{host.app.name}/1", 1
    monkeypatch.setattr("state_lib.host.restore_records._EVERY_S", 0.0)
    with closing(FlightHostClient(host.at, None)) as client:
        client.snapshot(app.name, partition)
        until(lambda: client.snapshot_status(app.name, partition)["state"] != "running", 60)
        taken = client.snapshot_status(app.name, partition)
    assert taken["error"] is None
    task = host.manager.task(app.name, partition)
    task.commit(batch(task.marker, {"kv": kv(("c", "3"))}))
    before = digests(task)
    host.snapshots_url = host.storage
    host.lose(partition)
    arguments = ["restore", "run", app.name]

    with monkeypatch.context() as full:
        full.setattr("state_lib.restore.facts.free_bytes", lambda _path: 1 << 20)
        failed = shell.invoke(command, arguments)
    assert failed.exit_code == 1
    assert "1 MiB free" in failed.stderr
    assert re.search(rf"{name} .* failed", failed.stdout), "its bar"
    gauge = "holdfast_restore_remaining_snapshot_bytes"
    labels = {"app": app.name, "task": name}
    assert host.metrics.registry.get_sample_value(gauge, labels) is None, "nothing was fetched"

    done = shell.invoke(command, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    events = [orjson.loads(line) for line in done.stdout.splitlines()]
    fetches = [e for e in events if e["event"] == "fetch"]
    assert [e["event"] for e in events if e not in fetches] == ["start", "batch", "end", "done"]
    assert fetches == events[: len(fetches)]
    assert fetches[-1]["done"] == fetches[-1]["total"] == taken["size_bytes"]
    assert events[-1]["source"] == taken["snapshot"]
    assert digests(host.manager.task(app.name, partition)) == before
    assert host.metrics.registry.get_sample_value(gauge, labels) == 0
    assert host.metric("holdfast_restore_total", name) == 1, "the tail only"

    until(lambda: host.phases(name)[-1:] == ["end"] and "fetch" in host.phases(name), 60)
    phases = host.phases(name)
    told = phases[phases.index("error") + 1 :]
    assert told == ["fetch"] * told.count("fetch") + ["start", "progress", "end"]


def test_what_is_replaced_is_asked_for(host: Host, shell: CliRunner) -> None:
    app = host.app
    task = host.manager.task(app.name, 0)
    before, stores = digests(task), task._held.stores
    arguments = ["restore", "run", app.name, "--task", "0", "--from", "changelog"]
    refused = shell.invoke(command, arguments, input="n\n")
    assert refused.exit_code == 1
    assert task._held.stores is stores
    done = shell.invoke(command, [*arguments, "--yes", "--json"])
    assert done.exit_code == 0, done.output
    events = [orjson.loads(line) for line in done.stdout.splitlines()]
    assert [e["event"] for e in events] == ["start", "batch", "end", "done"]
    assert events[-1]["marker"]["n"] == 1
    assert task._held.stores is not stores
    assert digests(task) == before


def test_bad_requests(host: Host, shell: CliRunner) -> None:
    app = host.app
    for arguments, says in (
        (["plan", "no-such-app"], "has never run"),
        (["plan", app.name, "--task", "7"], "tasks 0 to 1"),
        (["plan", app.name, "--from", "tape"], "no source 'tape'"),
        (["run", app.name, "--from", "tape"], "no source 'tape'"),
    ):
        done = shell.invoke(command, ["restore", *arguments])
        assert done.exit_code == 1, done.output
        assert says in done.stderr
    with closing(FlightHostClient(host.at, None)) as client:
        with pytest.raises(NotFound):
            client.restore_plan(app.name, 5)
        plan = client.restore_plan(app.name, 0)
        plan["source"] = "snapshot"
        plan["snapshot"] = "gone"
        with pytest.raises(InvalidRequest, match="no source 'gone'"):
            list(client.restore_run(app.name, 0, plan))
        assert host.manager.task(app.name, 0).is_open, "and the task is as it was"


def test_only_the_owner_plans_and_restores(host: Host) -> None:
    """Another host refuses and names the owner; it does not even look at a directory."""
    app = host.app
    both = [host.at, address("host-2")]
    other = TaskManager(app.context("host-2"), both, 60.0)
    theirs = next(p for p in range(PARTITIONS) if owner_of(app.name, p, both).id == host.at.id)
    other.apps[app.name] = app.topology
    with pytest.raises(NotOwner) as refused:
        other.owned(app.name, theirs)
    assert refused.value.details["owner"] == host.at.id


def test_a_second_restore_is_busy_and_the_first_goes_on_without_its_caller(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = host.app
    held = HeldReplay(monkeypatch)
    task = host.manager.task(app.name, 0)
    with closing(FlightHostClient(host.at, None)) as client:
        other = client.restore_plan(app.name, 0)
        plan = client.restore_plan(app.name, 0, "changelog")
        events = client.restore_run(app.name, 0, plan)
        first = threading.Thread(target=lambda: next(events))
        first.start()
        held.wait()
        with closing(FlightHostClient(host.at, None)) as second:
            with pytest.raises(Busy):
                second.restore_plan(app.name, 0)
            with pytest.raises(Busy):
                list(second.restore_run(app.name, 0, other))
            met = second.restore_start(app.name, 0, plan)
            assert (met["state"], met["source"]) == ("running", "changelog")
        assert not task.is_open
        held.go.set()
        first.join(60 * SLOWNESS)
        events.close()  # type: ignore[attr-defined] # the caller leaves
        until(lambda: task.is_open, 60)
        until(lambda: client.restore_start(app.name, 0, plan)["state"] == "done", 60)
        again = list(client.restore_run(app.name, 0, plan))
    assert [e["event"] for e in again] == ["done"], "the same plan has been carried out"


def test_a_host_restores_a_few_tasks_at_a_time(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hosted(make_app([KV]), 6) as host:
        tasks = list(host.manager.tasks.values())
        plans = [task.plan(CHANGELOG) for task in tasks]
        held = HeldReplay(monkeypatch)
        jobs = [host.manager.restores.start(*one) for one in zip(tasks, plans, strict=True)]
        assert {job.state for job in jobs} == {"running"}
        until(lambda: held.waiting == 4, 60, "four have begun")
        assert [task.is_open for task in tasks].count(True) == 2, "it is not their turn yet"
        held.go.set()
        for job in jobs:
            job.result()
        assert held.most == 4
        assert all(task.is_open for task in tasks)


@contextmanager
def watched(host: Host, plans: list[RestorePlan], **more: float) -> Iterator[RestoreWatch]:
    """What follows restores over HTTP."""
    at, servers = host.at, str(host.app.kafka.properties["bootstrap.servers"])
    hosts = f"{at.id}={at.host}:{at.flight_port}/{at.http_port}"
    settings = Settings.load(bootstrap_servers=servers, hosts=hosts)
    http = HttpServer(host.manager, at, None)
    http.start()
    try:
        with closing(RestoreWatch(settings, host.app.name, plans, **more)) as watch:
            yield watch
    finally:
        http.stop()


def test_a_restore_that_fails_again_and_again_is_given_up(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its host is there, and takes each request."""
    host.lose(0)
    plan = host.manager.tasks[host.app.name, 0].plan()
    with watched(host, [plan], away_s=2.0) as watch, monkeypatch.context() as full:
        full.setattr("state_lib.restore.facts.free_bytes", lambda _path: 1 << 20)
        until(lambda: watch.look() and watch.over, 30, "given up")
        (one,) = watch.followed
        assert one.state == "failed"
        assert one.why.startswith("given up after 2 s: ")
        assert "1 MiB free" in one.why
    with watched(host, [plan], away_s=2.0) as watch:
        until(lambda: watch.look() and watch.over, 60, "done")
        assert [one.state for one in watch.followed] == ["done"]
