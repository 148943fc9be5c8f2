"""The trigger of all sensors: what it does while nobody answers, and when it is cancelled."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from airflow.models import Connection
from airflow.utils.session import create_session
from sqlalchemy import delete

from holdfast_airflow.triggers.condition import ConditionTrigger
from state_lib.changelog.admin import set_topic_configs
from state_lib.checks.condition import CONDITIONS
from state_lib.config import Settings
from state_lib.errors import Unavailable
from state_lib.gathering.sensing import NOTHING, Look, Sense
from state_lib.kafka import Kafka
from state_lib.stack.broker import LocalBroker
from state_lib.stack.ports import free_port
from tests.dags.conftest import Connect
from tests.support.apps import KV, App, app_of
from tests.support.brokers import paused, running_broker
from tests.support.dripping import dripping
from tests.support.hosts import publish
from tests.support.sensing import Looks, first, quiet
from tests.support.waiting import SLOWNESS, until


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """One that may be away: no other test shares it."""
    with running_broker(tmp_path_factory.mktemp("away")) as running:
        yield running


@pytest.fixture
def app(broker: LocalBroker, request: pytest.FixtureRequest, tmp_path: Path) -> App:
    name = request.node.name.replace("_", "-")[:40].strip("-")

    def made() -> App | None:
        found = app_of(Kafka({"bootstrap.servers": broker.bootstrap}), name, tmp_path, [KV])
        with suppress(Unavailable):  # it was away just now
            found.create()
            publish(found)
            return found
        return None

    return until(made, 60, "made")


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch, api: None) -> Looks:  # noqa: ARG001 - connections
    return Looks(monkeypatch)


def trigger(app: App, name: Any = "changelog-unsafe", **more: Any) -> ConditionTrigger:
    servers = str(app.kafka.properties["bootstrap.servers"])
    hosts = f"host-1=127.0.0.1:{free_port()}/{free_port()}"
    env = {"HOLDFAST_BOOTSTRAP_SERVERS": servers, "HOLDFAST_HOSTS": hosts}
    env["HOLDFAST_REPLICATION_FACTOR"] = "1"
    return ConditionTrigger(app.name, name, env=env, **{"poke_interval": 0.2, **more})


def delete_from(app: App) -> None:
    config = {"cleanup.policy": "delete", "retention.ms": "-1"}
    set_topic_configs(app.kafka.admin(), app.topic("kv"), config)


def test_an_event_says_what_holds(app: App, looks: Looks) -> None:
    delete_from(app)
    event = asyncio.run(asyncio.wait_for(first(trigger(app)), 60 * SLOWNESS))
    (found,) = event["conditions"]
    assert found["subject"] == app.topic("kv")
    assert found["text"].startswith(f"changelog-unsafe of {app.name}, {app.topic('kv')}: ")
    assert looks.count == 1


def test_what_is_known_does_not_fire_and_its_end_does(app: App, looks: Looks) -> None:
    delete_from(app)
    waiting = trigger(app, known=[app.topic("kv"), "another"], calm_s=1.0)
    event = asyncio.run(asyncio.wait_for(first(waiting), 60 * SLOWNESS))
    assert (event["conditions"], event["over"]) == ([], ["another"])
    assert looks.count > 1


def test_a_broker_that_is_away_is_told_of_once_and_waited_for(
    app: App, looks: Looks, broker: LocalBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run() -> dict[str, Any]:
        waiting = asyncio.create_task(first(trigger(app, hold_s=0.5)))
        await quiet(waiting, looks, 2)
        with paused(broker):
            await quiet(waiting, looks, 2)
            assert looks.last.sure == NOTHING
            assert looks.last.blind
        while looks.last.blind:
            await quiet(waiting, looks, 1)
        await asyncio.to_thread(delete_from, app)
        return await asyncio.wait_for(waiting, 90 * SLOWNESS)

    event = asyncio.run(run())
    assert [c["name"] for c in event["conditions"]] == ["changelog-unsafe"]
    said = capsys.readouterr().out
    assert said.count("Cannot look for changelog-unsafe") == 1
    assert said.count("Looking for changelog-unsafe") == 1


def test_that_nobody_can_look_is_a_condition_where_that_is_wanted(
    app: App, looks: Looks, broker: LocalBroker
) -> None:
    async def run() -> dict[str, Any]:
        with paused(broker):
            told = await asyncio.wait_for(first(trigger(app, blind_s=1.0)), 120 * SLOWNESS)
            (found,) = told["conditions"]
            assert (found["name"], found["subject"]) == ("cannot-look", "changelog-unsafe")
            assert looks.last.blind == found["seen"]
            knows = trigger(app, blind_s=1.0, known=["changelog-unsafe"])
            waiting = asyncio.create_task(first(knows))
            await quiet(waiting, looks, 1)
        return await asyncio.wait_for(waiting, 120 * SLOWNESS)

    event = asyncio.run(run())
    assert (event["conditions"], event["over"]) == ([], ["changelog-unsafe"])


def test_a_token_that_is_just_written_is_read_again(app: App, looks: Looks, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.touch()
    waiting = trigger(app, "host-down")
    waiting.env["HOLDFAST_TOKEN_FILE"] = str(file)

    async def run() -> dict[str, Any]:
        task = asyncio.create_task(first(waiting))
        blind = await asyncio.to_thread(until, lambda: waiting._blind, 60, "told")
        assert str(file) in blind
        assert not task.done()
        file.write_text("a-token")
        return await asyncio.wait_for(task, 60 * SLOWNESS)

    event = asyncio.run(run())
    assert [c["subject"] for c in event["conditions"]] == ["host-1"]
    assert looks.count == 1


@pytest.mark.usefixtures("api")
def test_airflows_other_triggers_are_not_held_up(
    app: App, broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even by a look that takes longer than it may."""
    monkeypatch.setattr("holdfast_airflow.triggers.condition.ANSWER_S", 0.5)
    slow = trigger(app)
    longest = 0.0

    async def run() -> None:
        nonlocal longest
        waiting = asyncio.create_task(first(slow))
        end = time.monotonic() + 3
        while time.monotonic() < end:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - before)
        assert not waiting.done()
        assert slow._blind == "no answer for 0 s and more"
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    with paused(broker):
        began = time.monotonic()
        asyncio.run(run())
        assert time.monotonic() - began < 10 * SLOWNESS, "a cancelled one is not waited for"
    assert longest < 1 * SLOWNESS


def test_a_trigger_that_is_cancelled_leaves_no_thread(app: App, looks: Looks) -> None:
    async def run() -> None:
        waiting = asyncio.create_task(first(trigger(app, "driver-stalled", hold_s=1000)))
        await quiet(waiting, looks, 2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(run())
    until(lambda: not [t for t in threading.enumerate() if app.name in t.name], 60, "ended")


@pytest.mark.parametrize("name", ["host-down", "store-lost", "disk-filling"])
def test_a_host_that_answers_slowly_for_ever_holds_nobody_up(name: Any) -> None:
    with dripping() as port:
        settings = Settings.load(hosts=f"host-1=127.0.0.1:{port}/{free_port()}")
        sense = Sense(settings, "slow", name, host_timeout_s=1.0)
        began = time.monotonic()
        look = sense.look()
        assert time.monotonic() - began < 5 * SLOWNESS
    if name == "host-down":
        assert [c.subject for c in look.conditions] == ["host-1"]
    else:
        assert (look.conditions, look.sure) == ((), NOTHING)
        assert look.blind


@pytest.mark.parametrize("name", CONDITIONS)
def test_an_application_that_nobody_knows_is_waited_for(broker: LocalBroker, name: Any) -> None:
    settings = Settings.load(
        bootstrap_servers=broker.bootstrap, hosts=f"host-1=127.0.0.1:{free_port()}/{free_port()}"
    )
    sense = Sense(settings, "nobody-s", name, host_timeout_s=1.0)
    look = sense.look()
    sense.close()
    assert {c.name for c in look.conditions} == ({"host-down"} if name == "host-down" else set())
    kafkas = ("task-without-owner", "changelog-unsafe", "compaction-stuck", "snapshot-stale")
    if name in kafkas:
        assert "nobody-s" in str(look.blind)
        assert look.sure is None, "nothing of it is wrong, and what was is over"
    elif name == "driver-stalled":
        assert look == Look()


def test_a_connection_that_was_not_there_counts_once_it_is(
    app: App, looks: Looks, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or that was there, and could not be read when the task deferred for a day."""
    monkeypatch.setattr("holdfast_airflow.triggers.condition.READ_EVERY_S", 0.5)
    delete_from(app)
    servers = str(app.kafka.properties["bootstrap.servers"])

    async def run() -> dict[str, Any]:
        waiting = trigger(app, conn_id="holdfast_default", found=False)
        waiting.env["HOLDFAST_BOOTSTRAP_SERVERS"] = f"127.0.0.1:{free_port()}"
        task = asyncio.create_task(first(waiting))
        await quiet(task, looks, 1)
        assert looks.last.blind, "by settings of its own"
        del waiting.env["HOLDFAST_BOOTSTRAP_SERVERS"]
        connect(servers, "holdfast_default", conn_type="holdfast")
        return await asyncio.wait_for(task, 90 * SLOWNESS)

    event = asyncio.run(run())
    assert [c["subject"] for c in event["conditions"]] == [app.topic("kv")]


def test_a_connection_that_cannot_be_read_is_not_replaced_by_other_settings(
    app: App, looks: Looks, connect: Connect
) -> None:
    """Airflow may be away for a moment, and the triggerer's own settings be of other brokers."""
    delete_from(app)
    servers = str(app.kafka.properties["bootstrap.servers"])

    async def run() -> dict[str, Any]:
        waiting = trigger(app, conn_id="of-the-test")
        del waiting.env["HOLDFAST_BOOTSTRAP_SERVERS"]
        task = asyncio.create_task(first(waiting))
        blind = await asyncio.to_thread(until, lambda: waiting._blind, 60, "told")
        assert blind == "there is no connection 'of-the-test' now"
        connect(servers, "of-the-test", conn_type="holdfast")
        return await asyncio.wait_for(task, 60 * SLOWNESS)

    event = asyncio.run(run())
    assert [c["subject"] for c in event["conditions"]] == [app.topic("kv")]
    assert looks.count == 1


def test_a_connection_that_was_wrong_is_read_again_until_it_is_right(
    app: App, looks: Looks, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast_airflow.triggers.condition.READ_EVERY_S", 0.5)
    delete_from(app)
    servers = str(app.kafka.properties["bootstrap.servers"])
    connect(f"127.0.0.1:{free_port()}", "of-the-test", conn_type="holdfast")

    async def run() -> dict[str, Any]:
        waiting = trigger(app, conn_id="of-the-test")
        del waiting.env["HOLDFAST_BOOTSTRAP_SERVERS"]
        task = asyncio.create_task(first(waiting))
        await quiet(task, looks, 1)
        assert looks.last.blind
        connect(servers, "of-the-test", conn_type="holdfast")
        return await asyncio.wait_for(task, 90 * SLOWNESS)

    event = asyncio.run(run())
    assert [c["subject"] for c in event["conditions"]] == [app.topic("kv")]


def test_hosts_that_a_person_corrects_in_a_connection_are_looked_at(
    app: App, looks: Looks, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody was blind: those that were named by mistake were down."""
    monkeypatch.setattr("holdfast_airflow.triggers.condition.READ_EVERY_S", 0.5)
    waiting = trigger(app, "host-down", conn_id="of-the-test", known=["host-9"], calm_s=0.0)
    right = waiting.env.pop("HOLDFAST_HOSTS")
    servers = waiting.env.pop("HOLDFAST_BOOTSTRAP_SERVERS")
    wrong = right.replace("host-1", "host-9")
    connect(servers, "of-the-test", conn_type="holdfast", extra=json.dumps({"hosts": wrong}))

    async def run() -> dict[str, Any]:
        task = asyncio.create_task(first(waiting))
        await quiet(task, looks, 3)
        connect(servers, "of-the-test", conn_type="holdfast", extra=json.dumps({"hosts": right}))
        return await asyncio.wait_for(task, 90 * SLOWNESS)

    event = asyncio.run(run())
    assert [c["subject"] for c in event["conditions"]] == ["host-1"]
    assert event["over"] == ["host-9"]


def test_a_connection_that_came_and_is_deleted_again_leaves_the_tasks_own_settings(
    app: App, looks: Looks, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast_airflow.triggers.condition.READ_EVERY_S", 0.5)
    waiting, wrong = trigger(app, conn_id="holdfast_default", found=False), free_port()
    servers = waiting.env.pop("HOLDFAST_BOOTSTRAP_SERVERS")
    monkeypatch.setenv("HOLDFAST_BOOTSTRAP_SERVERS", servers)

    async def run() -> dict[str, Any]:
        task = asyncio.create_task(first(waiting))
        await quiet(task, looks, 1)
        connect(f"127.0.0.1:{wrong}", "holdfast_default", conn_type="holdfast")
        while looks.last.blind is None:
            await quiet(task, looks, 1)
        await asyncio.to_thread(delete_from, app)
        with create_session() as session:
            session.execute(delete(Connection).where(Connection.conn_id == "holdfast_default"))
        return await asyncio.wait_for(task, 90 * SLOWNESS)

    event = asyncio.run(run())
    assert [c["subject"] for c in event["conditions"]] == [app.topic("kv")]
