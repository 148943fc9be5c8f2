"""``holdfast repair changelog``: what it shows, asks, creates and runs on a host."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from state_lib.cli import app as command
from state_lib.host.tasks import TaskManager
from tests.integration.conftest import MakeApp
from tests.support.apps import KV, TS, App, batch, digests, kv
from tests.support.hosts import address, claim, publish, served
from tests.support.lost import deleted, made_again
from tests.support.waiting import until

PARTITIONS = 2


@pytest.fixture
def app(make_app: MakeApp) -> App:
    made = make_app([KV, TS])
    made.topology = replace(made.topology, app=f"{made.name}-p", partitions=PARTITIONS)
    made.create()
    return made


@pytest.fixture
def manager(app: App, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[TaskManager]:
    """A host with two claimed and filled tasks, and the settings that lead to it."""
    at = address()
    monkeypatch.chdir(tmp_path)
    for name in [n for n in os.environ if n.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    servers = str(app.kafka.properties["bootstrap.servers"])
    monkeypatch.setenv("HOLDFAST_BOOTSTRAP_SERVERS", servers)
    monkeypatch.setenv("HOLDFAST_HOSTS", f"{at.id}={at.host}:{at.flight_port}/{at.http_port}")
    monkeypatch.setenv("HOLDFAST_REPLICATION_FACTOR", "1")
    monkeypatch.setenv("COLUMNS", "500")
    with served(app, at) as started:
        epoch = publish(app)
        for p in range(PARTITIONS):
            claim(started, app, epoch, p)
            task = started.task(app.name, p)
            puts = {s: kv(("a", f"{p}"), ("b", "2")) for s in ("kv", "ts")}
            task.commit(batch(task.marker, puts))
        yield started


def closed(manager: TaskManager, app: App) -> None:
    """As after a restart of the host: nothing is open, and nothing will be."""
    for p in range(PARTITIONS):
        manager.tasks[app.name, p].close()
    names = [f"{app.name}/{p}" for p in range(PARTITIONS)]
    until(
        lambda: sorted(manager.not_ready) == names and len(manager.openers.lost) == PARTITIONS, 60
    )


def run(*arguments: str, says: str = "") -> tuple[int, str, str]:
    done = CliRunner().invoke(command, ["repair", "changelog", *arguments], input=says)
    return done.exit_code, done.stdout, done.stderr


def test_lost_changelogs_are_shown_asked_about_and_written(manager: TaskManager, app: App) -> None:
    before = [digests(manager.task(app.name, p)) for p in range(PARTITIONS)]
    assert run(app.name)[:2] == (0, "nothing to repair: the topics of 2 tasks are whole\n")
    made_again(app, app.topic("kv"))
    closed(manager, app)
    code, out, _ = run(app.name, says="n\n")
    assert code == 1
    assert app.topic("kv") in out
    assert out.count("repairable") == PARTITIONS
    assert len(manager.not_ready) == PARTITIONS, "nothing was done"

    code, out, err = run(app.name, "--task", "1", "--store", "kv", "--yes")
    assert (code, "repaired 1 tasks" in out) == (0, True), err
    until(lambda: list(manager.not_ready) == [f"{app.name}/0"], 60)
    code, out, err = run(app.name, "--yes", "--json")
    assert code == 0, err
    events = [orjson.loads(line) for line in out.splitlines()]
    assert [e["event"] for e in events[:2]] == ["loss", "loss"]
    assert [bool(e["topics"]) for e in events[:2]] == [True, False]
    assert events[-1]["event"] == "done"
    assert events[-1]["marker"]["n"] == 1
    stores = [(e["event"], e["store"]) for e in events if e["event"] in ("start", "end")]
    both = ("kv", "kv, read back")
    assert stores == [(event, store) for store in both for event in ("start", "end")]
    until(lambda: not manager.not_ready, 60)
    for p in range(PARTITIONS):
        task = manager.task(app.name, p)
        assert digests(task) == before[p]
        assert task.commit(batch(task.marker, {"kv": kv(("c", "3"))})).batch_number == 2


def test_a_topic_that_was_deleted_is_created(manager: TaskManager, app: App) -> None:
    for p in range(PARTITIONS):
        manager.tasks[app.name, p].close()
    deleted(app, app.topic("ts"))
    code, out, err = run(app.name, "--yes")
    assert (code, "it does not exist" in out) == (0, True), err
    until(lambda: not manager.not_ready, 60)


def test_what_cannot_be_repaired_is_told(manager: TaskManager, app: App) -> None:
    task = manager.tasks[app.name, 1]
    task.close()
    made_again(app, app.topic("kv"))
    until(lambda: task.name in manager.openers.lost, 60)
    with task._exclusive.lock:
        shutil.rmtree(task.path)
    code, out, err = run(app.name, "--task", "1", "--yes")
    assert code == 1
    assert "has no copy of it" in err
    assert "holdfast app reset" in err
    assert "holdfast snapshot list" in err
    code, out, _ = run(app.name, "--task", "1", "--yes", "--json")
    events = [orjson.loads(line) for line in out.splitlines()]
    assert (code, [e["event"] for e in events]) == (1, ["loss", "failed"])


@pytest.mark.usefixtures("manager")
def test_bad_requests(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments, says in (
        (["no-such-app"], "no-such-app"),
        ([app.name, "--task", "7"], "tasks 0 to 1"),
        ([app.name, "--store", "nope"], "no store 'nope'"),
    ):
        code, _, err = run(*arguments)
        assert (code, says in err) == (1, True), err
    nobody = address("host-1")
    where = f"{nobody.id}={nobody.host}:{nobody.flight_port}/{nobody.http_port}"
    monkeypatch.setenv("HOLDFAST_HOSTS", where)
    code, _, err = run(app.name)
    assert code == 1
    assert f"{app.name}/0: " in err
    assert "host-1" in err, "a host that is away is named"
