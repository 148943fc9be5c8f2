"""Each sensor waits while all is well, and fires after a failure that is really made."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.bases.operator import TRIGGER_FAIL_REPR, TriggerFailureReason
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferralError,
)
from confluent_kafka.admin import NewTopic

from holdfast_airflow.sensors import (
    ChangelogUnsafeSensor,
    ConditionSensor,
    DiskFillingSensor,
    DriverStalledSensor,
    HostDownSensor,
    SnapshotStaleSensor,
    StoreLostSensor,
    TaskWithoutOwnerSensor,
)
from state_lib.changelog.admin import set_topic_configs
from state_lib.config import Settings
from state_lib.drivers.control import ask_to_stop
from state_lib.gathering.sensing import Look
from state_lib.kafka import Kafka
from state_lib.protocol.placement import owner_of
from tests.dags.conftest import Connect, Scripts
from tests.integration.test_disk_full import SPACES, may_mount
from tests.support import lost
from tests.support.apps import KV, WIN, App, app_of
from tests.support.dripping import silent
from tests.support.full_disk import fill
from tests.support.host_process import TOKEN, Hosts
from tests.support.hosts import address, publish
from tests.support.s3 import s3_server
from tests.support.sensing import Looks, deferred, first, quiet, sensed
from tests.support.waiting import SLOWNESS, until

SOON: dict[str, Any] = {"poke_interval": 0.3, "hold_s": 1.0}
Make = Callable[..., Hosts]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch, api: None) -> Looks:  # noqa: ARG001 - connections
    return Looks(monkeypatch)


@pytest.fixture
def app(settings: Settings, request: pytest.FixtureRequest, tmp_path: Path) -> App:
    """One with topics of its own."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name).strip("-")[:50]
    found = app_of(Kafka.of(settings), name, tmp_path, [KV])
    found.create()
    return found


@pytest.fixture
def make(app: App) -> Iterator[Make]:
    """Hosts in processes of their own, with all tasks claimed and something in them."""
    made: list[Hosts] = []

    def make(count: int = 1, partitions: int = 1, **flags: Any) -> Hosts:
        app.topology = replace(app.topology, partitions=partitions)
        hosts = Hosts(app, count, **flags)
        made.append(hosts)
        hosts.start(publish(app))
        for partition in range(partitions):
            hosts.commit(1, {b"k": b"v"}, partition)
        return hosts

    yield make
    for hosts in made:
        hosts.stop()


def of(kind: type[ConditionSensor], hosts: Hosts, **more: Any) -> ConditionSensor:
    env = hosts.settings.as_environment()
    return kind(task_id="sense", app=hosts.app.name, env=env, **{**SOON, **more})


def test_a_host_that_is_killed(make: Make, looks: Looks) -> None:
    hosts = make(count=2)
    owner = owner_of(hosts.app.name, 0, hosts.settings.host_addresses).id
    found = sensed(of(HostDownSensor, hosts), looks, hosts.processes[owner].kill)
    assert (found["name"], found["subject"]) == ("host-down", owner)
    assert (found["hosts"], found["tasks"]) == ([owner], [f"{hosts.app.name}/0"])
    assert found["document"] == "docs/runbook/hosts.md"
    hosts.launch()


def test_a_host_that_hangs(make: Make, looks: Looks) -> None:
    hosts = make()
    pid = hosts.processes["host-1"].pid
    try:
        found = sensed(of(HostDownSensor, hosts), looks, lambda: os.kill(pid, signal.SIGSTOP))
    finally:
        os.kill(pid, signal.SIGCONT)
    assert found["subject"] == "host-1"


def test_tasks_of_a_host_that_stays_down(make: Make, looks: Looks) -> None:
    hosts = make(count=2)
    owner = owner_of(hosts.app.name, 0, hosts.settings.host_addresses).id
    found = sensed(of(TaskWithoutOwnerSensor, hosts), looks, hosts.processes[owner].kill)
    assert found["tasks"] == [f"{hosts.app.name}/0"]
    assert found["seen"] == f"no host has it; the last one was {owner}"
    assert found["step"] == f"start {owner}: with it they are back"


def test_tasks_that_no_host_knows(make: Make, looks: Looks, tmp_path: Path) -> None:
    """Kafka knows their application, by a driver that has other hosts than the sensor."""
    hosts = make()
    app = app_of(hosts.app.kafka, "unmet", tmp_path, [KV])
    app.create()
    publish(app, [address("elsewhere")])
    env = hosts.settings.as_environment()
    sensor = TaskWithoutOwnerSensor(task_id="sense", app=app.name, env=env, **SOON)
    trigger, task = deferred(sensor)
    event = asyncio.run(asyncio.wait_for(first(trigger), 60 * SLOWNESS))
    found = sensor.resume_execution(task.method_name, {"event": event}, {})
    assert looks.last.blind is None
    assert (found["subject"], found["app"]) == ("unmet/0", "unmet")
    assert found["seen"] == "no host has it; nobody has ever had it"
    assert "'holdfast drivers unmet'" in found["step"]
    assert "HOLDFAST_HOSTS (host-1) is not what the driver has" in found["step"]


def restarted(hosts: Hosts, damage: Callable[[Path], object]) -> Callable[[], None]:
    """The host ends, its only task's directory is damaged, it starts again."""

    def failure() -> None:
        hosts.processes["host-1"].terminate()
        hosts.processes["host-1"].wait()
        damage(hosts.state() / "0")
        hosts.launch()

    return failure


def corrupt(folder: Path) -> None:
    files = list(folder.glob("*.sst"))
    assert files
    for file in files:
        file.write_bytes(b"\0" * file.stat().st_size)


@pytest.mark.parametrize("damage", [shutil.rmtree, corrupt])
def test_a_store_that_is_lost_or_corrupt(
    make: Make, looks: Looks, damage: Callable[[Path], object]
) -> None:
    hosts = make(restore_mode="orchestrated")
    sensor = of(StoreLostSensor, hosts, hold_s=None)
    assert sensor.hold_s == 0
    found = sensed(sensor, looks, restarted(hosts, damage))
    assert found == [f"{hosts.app.name}/0"]


def test_a_changelog_that_is_turned_to_delete(make: Make, looks: Looks) -> None:
    hosts = make()
    topic, admin = hosts.app.topic("kv"), hosts.app.kafka.admin()
    config = {"cleanup.policy": "delete", "retention.ms": "-1"}
    found = sensed(
        of(ChangelogUnsafeSensor, hosts), looks, lambda: set_topic_configs(admin, topic, config)
    )
    assert (found["subject"], found["page"]) == (topic, "cleanup-policy")
    assert "holdfast repair config" in found["step"]


def test_a_retention_that_is_shortened(app: App, looks: Looks) -> None:
    app.topology = replace(app.topology, stores=(WIN,))
    app.create()
    publish(app)
    topic, admin = app.topic("win"), app.kafka.admin()
    config = {"retention.ms": "60000"}
    sensor = ChangelogUnsafeSensor(task_id="sense", app=app.name, **SOON)
    found = sensed(sensor, looks, lambda: set_topic_configs(admin, topic, config))
    assert (found["subject"], found["page"]) == (topic, "retention")
    assert "1 min, less than the store's own" in found["seen"]


def test_a_changelog_that_is_deleted_and_made_again(make: Make, looks: Looks) -> None:
    hosts = make()
    topic = hosts.app.topic("kv")
    found = sensed(
        of(ChangelogUnsafeSensor, hosts), looks, lambda: lost.made_again(hosts.app, topic)
    )
    assert (found["subject"], found["page"]) == (topic, "changelog-lost")


def test_a_snapshot_that_gets_old(make: Make, looks: Looks, tmp_path: Path) -> None:
    hosts = make(snapshots_url=(tmp_path / "snapshots").as_uri())
    with hosts.client() as client:
        client.snapshot(hosts.app.name, 0)
        status = client.snapshot_status
        until(lambda: status(hosts.app.name, 0)["state"] == "done", 60, "a snapshot")
    sensor = of(SnapshotStaleSensor, hosts, max_age=timedelta(seconds=1))
    found = sensed(sensor, looks, lambda: hosts.commit(2, {b"k": b"w"}))
    assert found["tasks"] == [f"{hosts.app.name}/0"]
    assert "the oldest is" in found["seen"]


def test_storage_that_goes_silent(
    make: Make, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes connections and never says a word: that is told, and no look hangs."""
    answer_s = round(2 * SLOWNESS)
    monkeypatch.setattr("state_lib.snapshots.storage.ANSWER_S", float(answer_s))
    with ExitStack() as stack:
        server = stack.enter_context(s3_server())
        hosts = make(snapshots_url=server.bucket("goes-silent"))
        with hosts.client() as client:
            client.snapshot(hosts.app.name, 0)
            status = client.snapshot_status
            until(lambda: status(hosts.app.name, 0)["state"] == "done", 60, "a snapshot")

        def silence() -> None:
            server.stop()
            stack.enter_context(silent(server.port))

        found = sensed(of(SnapshotStaleSensor, hosts), looks, silence)
    assert f"no answer within {answer_s} s" in found["seen"]
    assert found["document"] == "docs/runbook/snapshots.md"


@contextmanager
def small(hosts: Hosts) -> Iterator[Callable[[], None]]:
    """The host runs anew on a small disk, which it restores to; yields what fills that."""
    hosts.stop()
    folder = hosts.settings.home / "state"
    mounted = 'mount -t tmpfs -o size=64M tmpfs "$1" && exec "$2" -m state_lib.host --id host-1'
    process = subprocess.Popen(
        [*SPACES, "sh", "-c", mounted, "sh", str(folder), sys.executable],
        env={**os.environ, **hosts.settings.as_environment(), "HOLDFAST_RESTORE_MODE": "auto"},
    )
    hosts.processes["host-1"] = process
    hosts.start(hosts.epoch)  # it runs: its tasks are claimed
    inside = Path(f"/proc/{process.pid}/root{folder}")
    yield lambda: fill(inside / "ballast", 2 << 20)


@pytest.mark.skipif(not may_mount(), reason="needs unshare(1) and user namespaces")
def test_a_disk_that_is_filled(make: Make, looks: Looks) -> None:
    hosts = make()
    with small(hosts) as full:
        found = sensed(of(DiskFillingSensor, hosts), looks, full)
    assert (found["subject"], found["tasks"]) == ("host-1", [f"{hosts.app.name}/0"])
    assert "% used" in found["seen"]


def driver_sensor(app: str, **more: Any) -> ConditionSensor:
    return DriverStalledSensor(task_id="sense", app=app, **{**SOON, **more})


def test_a_driver_that_is_killed(scripts: Scripts, looks: Looks) -> None:
    app = "sensed-killed"
    scripts.says(app, "run")
    driver = scripts.launch(app)
    scripts.commits(app)
    found = sensed(driver_sensor(app), looks, lambda: os.kill(driver.pid, signal.SIGKILL))
    assert f"process {driver.pid}, is gone without a word" in found["seen"]
    assert found["document"] == "docs/runbook/driver-stalled.md"


def test_a_driver_that_has_work_and_commits_nothing(
    scripts: Scripts, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long a batch may take is judged by those before it; here they are short."""
    monkeypatch.setattr("state_lib.drivers.pace.LEAST_LIMIT_S", 3.0)
    monkeypatch.setattr("tests.support.sensing.QUIET_LOOKS", 15)
    app = "sensed-idle"
    scripts.says(app, "run")
    scripts.launch(app)
    scripts.commits(app)
    admin = scripts.kafka.admin()
    admin.create_topics([NewTopic(f"{app}-lines", 1, 1)])[f"{app}-lines"].result()
    producer = scripts.kafka.producer()
    producer.produce(f"{app}-lines", b"a line that no marker says was read")
    producer.flush()
    found = sensed(driver_sensor(app), looks, lambda: scripts.says(app, "idle"), 90)
    assert "1 records to do and nothing committed for" in found["seen"]

    async def over() -> dict[str, Any]:
        """The next trigger, which knows no batch of before: it is over with a commit alone."""
        knows, _ = deferred(driver_sensor(app))
        knows.known, knows.calm_s = [app], 1.0
        waiting = asyncio.create_task(first(knows))
        await quiet(waiting, looks, 15)
        scripts.says(app, "run")
        return await asyncio.wait_for(waiting, 90 * SLOWNESS)

    assert asyncio.run(over())["over"] == [app]


def test_a_driver_that_is_stopped_is_no_alarm(scripts: Scripts, looks: Looks) -> None:
    app = "sensed-stopped"
    scripts.says(app, "run")
    driver = scripts.launch(app)
    scripts.commits(app)

    def stopped_then_killed_anew() -> None:
        ask_to_stop(scripts.kafka, app, why="the day is over")
        until(lambda: not driver.alive(), 60, "ended")
        seen = looks.count
        until(lambda: looks.count > seen + 5, 60, "looked at")
        os.kill(scripts.launch(app).pid, signal.SIGKILL)  # before it claims: nobody's loss
        again = scripts.launch(app)
        scripts.commits(app, other_than=driver.id)
        os.kill(again.pid, signal.SIGKILL)

    found = sensed(driver_sensor(app), looks, stopped_then_killed_anew, 90)
    assert "is gone without a word" in found["seen"]


def test_the_pace_of_batches_is_not_seen_by_rare_looks() -> None:
    with pytest.raises(ValueError, match="looks every 20 s at least"):
        driver_sensor("rarely", poke_interval=60)


def test_a_token_that_is_corrected_is_taken(make: Make, looks: Looks, connect: Connect) -> None:
    """Here and at the hosts it changes one after the other."""
    hosts = make()

    def say(token: str) -> None:
        extra = {"hosts": hosts.settings.hosts}
        servers = hosts.settings.bootstrap_servers
        connect(servers, "sensed", conn_type="holdfast", password=token, extra=extra)

    say("a-guess")
    sensor = HostDownSensor(task_id="sense", app=hosts.app.name, conn_id="sensed", **SOON)
    trigger, task = deferred(sensor)

    async def run() -> dict[str, Any]:
        waiting = asyncio.create_task(first(trigger))
        blind = await asyncio.to_thread(until, lambda: trigger._blind, 60, "told")
        assert "every state host refuses the token" in blind
        await asyncio.to_thread(say, TOKEN)
        await quiet(waiting, looks, 3)
        assert looks.last == Look()
        hosts.processes["host-1"].kill()
        return await asyncio.wait_for(waiting, 60 * SLOWNESS)

    event = asyncio.run(run())
    found = sensor.resume_execution(task.method_name, {"event": event}, {})
    assert found["subject"] == "host-1"


def test_a_token_that_every_host_refuses_for_long_needs_a_person(
    make: Make, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast_airflow.triggers.condition.PATIENCE_S", 2.0)
    hosts = make()
    sensor = of(HostDownSensor, hosts)
    sensor.env["HOLDFAST_TOKEN"] = "a-guess"
    with pytest.raises(AirflowFailException, match="every state host refuses the token"):
        sensed_error(sensor)
    assert looks.count == 0


def sensed_error(sensor: ConditionSensor) -> None:
    trigger, task = deferred(sensor)
    event = asyncio.run(asyncio.wait_for(first(trigger), 60))
    sensor.resume_execution(task.method_name, {"event": event}, {})


def test_soft_fail_is_about_time_and_hides_no_error() -> None:
    """Airflow's own sensors skip whatever fails, and say nothing: their run is a success."""
    soft = HostDownSensor(task_id="sense", app="nobody-s", soft_fail=True, timeout=5)
    hard = HostDownSensor(task_id="sense", app="nobody-s", timeout=5)
    with pytest.raises(AirflowFailException, match="a wrong token"):
        soft.resume_execution("resume", {"event": {"error": "a wrong token"}}, {})
    with pytest.raises(TaskDeferralError):
        soft.resume_execution(TRIGGER_FAIL_REPR, {"error": "the trigger failed"}, {})
    over = {"error": TriggerFailureReason.TRIGGER_TIMEOUT}
    for sensor, kind in ((soft, AirflowSkipException), (hard, AirflowSensorTimeout)):
        with pytest.raises(kind, match="host-down of nobody-s did not hold within 5 s"):
            sensor.resume_execution(TRIGGER_FAIL_REPR, over, {})


def test_a_wrong_setting_fails_before_anybody_waits(connect: Connect) -> None:
    connect("127.0.0.1:1", "holdfast_default", conn_type="holdfast", extra={"hosts": "nonsense"})
    with pytest.raises(AirflowFailException, match="hosts"):
        HostDownSensor(task_id="sense", app="nobody-s").execute({})
