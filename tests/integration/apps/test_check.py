"""`holdfast check` and `holdfast repair config` against real brokers and hosts."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from state_lib.changelog.admin import set_topic_configs, topic_configs
from state_lib.checks import Change
from state_lib.checks.condition import Name
from state_lib.config import Settings
from state_lib.errors import InvalidRequest
from state_lib.gathering.repair import differences, left_different, set_changes
from state_lib.gathering.sensing import Sense
from state_lib.host.disk import DiskWatch
from state_lib.protocol.addresses import HostAddress
from state_lib.protocol.placement import owner_of
from state_lib.stack.ports import free_port
from tests.support.apps import App
from tests.support.cluster import Cli, Cluster
from tests.support.waiting import SLOWNESS, until

WRONG = {"retention.ms": "-1", "cleanup.policy": "delete", "segment.ms": "99999999999"}


@pytest.fixture
def holdfast(
    cluster: Cluster,
    applications: tuple[App, App],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Cli:
    monkeypatch.setenv("HOLDFAST_REPLICATION_FACTOR", "1")
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOLDFAST_SNAPSHOTS_URL", (tmp_path / "snapshots").as_uri())
    return Cli("check", applications[0], cluster, monkeypatch)


@pytest.fixture
def app(cluster: Cluster, applications: tuple[App, App], holdfast: Cli) -> App:
    """One that ran, on both hosts, with a snapshot of each task."""
    app = applications[0]
    epoch = cluster.start(app)
    set_topic_configs(app.kafka.admin(), app.topology.sources[0], {"retention.ms": "-1"})
    for p in range(app.topology.partitions):
        cluster.commit(app, epoch, p, b"1")
    replace_command(holdfast, "snapshot")("create", app.name)
    return app


@pytest.fixture(autouse=True)
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk of whoever runs these tests is no finding: `tests.unit.checks` has those."""
    monkeypatch.setattr(DiskWatch, "_now", lambda _: (10**12, 6 * 10**11))


def replace_command(cli: Cli, command: str) -> Cli:
    """The same command line, another command."""
    other = object.__new__(Cli)
    other.__dict__ = {**cli.__dict__, "_command": command}
    return other


def bad(found: Any) -> dict[tuple[str, str], str]:
    return {(v["check"], v["subject"]): v["level"] for v in found["verdicts"] if v["level"] != "ok"}


def test_a_changelog_that_would_delete_fails(app: App, holdfast: Cli) -> None:
    found = holdfast.json(app.name)
    assert (found["level"], bad(found)) == ("ok", {})
    assert "0 warn, 0 fail" in holdfast(app.name)
    topic = app.topic("kv")
    wrong = {"cleanup.policy": "compact,delete", "delete.retention.ms": "86400000"}
    set_topic_configs(app.kafka.admin(), topic, {"retention.ms": "-1", **wrong})
    found = holdfast.json(app.name, code=2)
    assert bad(found) == {("cleanup-policy", topic): "fail", ("tombstones", topic): "warn"}
    shown = holdfast(app.name, code=2)
    assert "compact,delete: records are deleted by age" in shown
    assert "docs/runbook/cleanup-policy.md" in shown
    assert f"holdfast repair config {app.name}" in shown
    set_topic_configs(app.kafka.admin(), topic, {"cleanup.policy": "compact"})
    assert bad(holdfast.json(app.name, code=1)) == {("tombstones", topic): "warn"}


def test_a_changelog_whose_records_were_deleted_by_age_is_named_as_lost(
    app: App, holdfast: Cli
) -> None:
    topic = app.topic("kv")
    set_topic_configs(app.kafka.admin(), topic, {"cleanup.policy": "compact,delete"})

    def lost() -> str | None:
        found = holdfast.json(app.name, code=2)["verdicts"]
        return next(
            (v["seen"] for v in found if v["check"] == "changelog-lost" and v["step"]), None
        )

    assert "were deleted" in until(lost, 60, "deleted by the brokers")


def test_repair_shows_asks_and_alters_only_what_is_owned(app: App, holdfast: Cli) -> None:
    admin, topic, out = app.kafka.admin(), app.topic("kv"), app.topology.outputs[0].topic
    source, repair = app.topology.sources[0], replace_command(holdfast, "repair")
    assert "nothing to repair" in repair("config", app.name)
    set_topic_configs(admin, topic, WRONG)
    for foreign in (out, source):
        set_topic_configs(admin, foreign, {"cleanup.policy": "delete", "retention.ms": "1000"})
    before = topic_configs(admin, [topic, out, source])

    shown = repair("config", app.name, answer="n\n", code=1)
    assert "cleanup.policy" in shown
    assert "segment.ms" in shown
    assert out not in shown
    assert topic_configs(admin, before) == before
    lines = repair.run("config", app.name, "--json", code=1).stdout.splitlines()
    assert {orjson.loads(one)["key"] for one in lines} == {"cleanup.policy", "segment.ms"}
    assert topic_configs(admin, before) == before, "with --json nothing is asked, nor done"

    shown = repair("config", app.name, "--yes")
    assert "repaired: 2 settings" in shown
    after = topic_configs(admin, before)
    assert after[topic]["cleanup.policy"] == "compact"
    assert after[topic]["segment.ms"] == str(7 * 86_400_000)
    assert (after[out], after[source]) == (before[out], before[source])
    assert bad(holdfast.json(app.name, code=2)) == {("retention", out): "fail"}

    with pytest.raises(InvalidRequest, match="only its own topics"):
        set_changes(app.kafka, app.name, [Change(out, "retention.ms", "1000", "-1")])
    assert topic_configs(admin, [out])[out] == before[out]


@pytest.mark.parametrize("as_json", [False, True])
def test_a_repair_that_somebody_undoes_says_what_is_left(
    app: App, holdfast: Cli, monkeypatch: pytest.MonkeyPatch, *, as_json: bool
) -> None:
    admin, topic = app.kafka.admin(), app.topic("kv")
    set_topic_configs(admin, topic, WRONG)
    undone = Change(topic, "segment.ms", WRONG["segment.ms"], str(7 * 86_400_000))

    def undo(*of: Any) -> tuple[Change, ...]:
        set_topic_configs(admin, topic, {"segment.ms": WRONG["segment.ms"]})
        until(lambda: differences(*of) == (undone,), 60, "undone")
        return left_different(*of)

    monkeypatch.setattr("state_lib.cli._repair_config.left_different", undo)
    repair = replace_command(holdfast, "repair")
    if as_json:
        lines = repair.run("config", app.name, "--yes", "--json", code=1).stdout.splitlines()
        done = {"event": "done", "app": app.name, "set": 2, "left": [asdict(undone)]}
        assert orjson.loads(lines[-1]) == done
    else:
        shown = repair("config", app.name, "--yes", code=1)
        assert "set, and still different; see 'holdfast check':" in shown
        assert shown.count("segment.ms") == 2
        assert shown.count("cleanup.policy") == 1
        assert "repaired" not in shown
    assert topic_configs(admin, [topic])[topic]["cleanup.policy"] == "compact"


def test_a_repair_is_refused_if_settings_changed_while_it_asked(
    app: App, holdfast: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin, topic = app.kafka.admin(), app.topic("kv")
    set_topic_configs(admin, topic, WRONG)
    by_now = {**WRONG, "segment.ms": "88888888888"}

    def settings() -> dict[str, str]:
        now = topic_configs(admin, [topic])[topic]
        return {key: now[key] for key in WRONG}

    def meanwhile(*_: Any, **__: Any) -> bool:
        set_topic_configs(admin, topic, {"segment.ms": by_now["segment.ms"]})
        until(lambda: settings() == by_now, 60, "set")
        return True

    monkeypatch.setattr("state_lib.cli._repair_config.typer.confirm", meanwhile)
    shown = " ".join(replace_command(holdfast, "repair")("config", app.name, code=1).split())
    assert "are not set any more as they were when the repair was approved" in shown
    assert f"segment.ms of {topic} is 88888888888" in shown
    assert "Nothing was altered" in shown
    assert settings() == by_now


def test_what_cannot_be_checked_is_no_mere_warning(
    app: App, holdfast: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = holdfast.json(f"{app.name}-x", code=2)
    assert found["level"] == "fail"
    assert found["error"]["code"] == "not-found"
    assert app.name in found["error"]["message"]
    assert "there is no application" in holdfast(f"{app.name}-x", code=2)
    assert holdfast.json("no/name", code=2)["error"]["code"] == "invalid-name"
    assert "there is no application" in replace_command(holdfast, "repair")(
        "config", f"{app.name}-x", code=1
    )
    monkeypatch.setenv("HOLDFAST_BOOTSTRAP_SERVERS", f"127.0.0.1:{free_port()}")
    began = time.monotonic()
    found = holdfast.json(app.name, code=2)
    assert found["error"]["code"] == "unavailable"
    assert time.monotonic() - began < 60 * SLOWNESS


def test_a_wrong_token_is_a_finding(app: App, holdfast: Cli) -> None:
    holdfast.token("another")
    found = bad(holdfast.json(app.name, "--quick", code=2))
    assert {check for check, _ in found} == {"hosts", "tasks"}


@contextmanager
def slow_for_ever() -> Iterator[int]:
    """Takes connections and says a byte now and then: any wait for silence waits for ever."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        stop = threading.Event()

        def serve(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                while not stop.wait(0.2):
                    connection.send(b"\0")

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    threading.Thread(target=serve, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        stop.set()


def test_a_host_that_answers_slowly_for_ever_is_away(
    app: App, cluster: Cluster, holdfast: Cli
) -> None:
    first, second = cluster.addresses
    with slow_for_ever() as port:
        holdfast.hosts([first, replace(second, flight_port=port)])
        began = time.monotonic()
        found = holdfast.json(app.name, "--timeout", "2", code=2)
        assert time.monotonic() - began < 30 * SLOWNESS
    theirs = [p for p in range(3) if owner_of(app.name, p, cluster.addresses) == second]
    subject = f"{app.name}/{', '.join(map(str, theirs))}"
    assert bad(found) == {("hosts", "host-2"): "fail", ("tasks", subject): "fail"}
    orphans = next(v for v in found["verdicts"] if v["subject"] == subject)
    assert "start host-2" in orphans["step"]


def test_a_host_that_is_not_there_is_away(app: App, cluster: Cluster, holdfast: Cli) -> None:
    nobody = HostAddress("host-3", "127.0.0.1", free_port(), free_port())
    holdfast.hosts([*cluster.addresses, nobody])
    assert bad(holdfast.json(app.name, "--quick", code=2)) == {("hosts", "host-3"): "fail"}


def test_a_host_whose_disk_is_busy_is_not_down(
    app: App, holdfast: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is there, and how its tasks are, is asked every few seconds: it reads nothing."""
    del holdfast  # whose settings these are
    ended = threading.Event()

    def slow(paths: object) -> int:
        del paths
        ended.wait(60)
        return 0

    monkeypatch.setattr("state_lib.host.holdings.size_of", slow)
    settings, quick = Settings.load(), list[Name](["host-down", "store-lost", "task-without-owner"])
    try:
        for name in quick:
            look = Sense(settings, app.name, name, host_timeout_s=2.0).look()
            assert (look.conditions, look.blind) == ((), None), name
        full = Sense(settings, app.name, "disk-filling", host_timeout_s=2.0).look()
        assert full.blind is not None, "sizes take as long as they take"
    finally:
        ended.set()


def test_what_hosts_tell(app: App, cluster: Cluster, holdfast: Cli) -> None:
    """Facts that only a host has come through: entries, sizes, disk, durable offsets."""
    for manager in cluster.managers:
        manager.disk.pass_by()
        for task in manager.tasks.values():
            task.flush()
    held = cluster.hosts.held(app.name)
    tasks = [t for one in held for t in one.apps[app.name]["tasks"]]
    assert sorted(t["partition"] for t in tasks) == [0, 1, 2]
    for task in tasks:
        assert task["state"] == "open"
        assert task["bytes"] > 0
        assert task["stores"]["kv"]["entries"] == 1
        assert task["durable"][app.topic("kv")] >= 1
    for one in held:
        assert one.disk["total"] > one.disk["free"] > 0
        assert one.disk["used"]
    shown = holdfast(app.name, "--all")
    for words in ("3 partitions are whole", "go on from their directories", "not filling"):
        assert words in shown
