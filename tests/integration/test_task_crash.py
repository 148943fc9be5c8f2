"""SIGKILL at the named points of a commit, and at random: nothing lost, nothing doubled."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from state_lib.changelog.topics import commits_topic
from state_lib.protocol.marker import Marker
from tests.integration.conftest import MakeApp
from tests.support.apps import KV, WIN, App
from tests.support.committer import nth
from tests.support.counting import Counting
from tests.support.fold import committed, fold

REPOSITORY = Path(__file__).parents[2]
STORES = [KV, WIN]


def host(app: App, batches: int, failpoints: str = "") -> subprocess.Popen[str]:
    (app.root / "host-1").mkdir(exist_ok=True)
    return subprocess.Popen(
        [
            sys.executable, "-m", "tests.support.committer",
            str(app.kafka.properties["bootstrap.servers"]), str(app.root / "host-1"),
            json.dumps(app.topology.to_json()), str(batches),
        ],
        cwd=REPOSITORY,
        env=os.environ | {"HOLDFAST_FAILPOINTS": failpoints, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip


def acknowledged(process: subprocess.Popen[str]) -> list[int]:
    out, _ = process.communicate(timeout=60)
    return [int(line) for line in out.split()]


def check(app: App, batches: int) -> Counting:
    """The task equals the fold of its changelogs at exactly that many batches."""
    listener = Counting()
    task = app.opened(listener=listener)
    servers = str(app.kafka.properties["bootstrap.servers"])
    assert task.marker.batch_number == batches
    assert task.marker.positions == ({("source", 0): 10 * batches} if batches else {})
    last = Marker.from_bytes(committed(servers, commits_topic(app.name))[-1].value() or b"")
    assert last == task.marker
    assert dict(task.scan("kv")[1]) == fold(servers, app.topic("kv"))
    windows = fold(servers, app.topic("win"), timestamped=True)
    with task.view() as (marker, stores):
        live = {
            k: v for k, v in windows.items() if stores.stores["win"].live(k, marker.stream_time_ms)
        }
    assert dict(task.scan("win")[1]) == live
    assert len(committed(servers, app.topic("kv"))) == 3 * batches, "each batch once"
    task.close()
    return listener


@pytest.mark.parametrize(
    ("point", "stands"),
    [
        ("commit.before_transaction", 2),
        ("commit.after_kafka", 3),
        ("commit.after_rocksdb", 3),
    ],
)
def test_killed_in_the_third_commit(make_app: MakeApp, point: str, stands: int) -> None:
    app = make_app(STORES)
    process = host(app, 9, f"{point}=kill@3")
    assert acknowledged(process) == [1, 2]
    assert process.returncode == -signal.SIGKILL
    check(app, stands)
    assert acknowledged(host(app, 2)) == [stands + 1, stands + 2]
    check(app, stands + 2)


def test_only_the_tail_since_the_last_flush_is_replayed(make_app: MakeApp) -> None:
    app = make_app(STORES)
    assert acknowledged(host(app, 4)) == [1, 2, 3, 4]  # closes, and so flushes
    acknowledged(host(app, 9, "commit.after_kafka=kill@3"))
    replayed = check(app, 7)
    assert replayed.records == {"kv": 9, "win": 6}
    assert check(app, 7).records == {}


def test_a_failure_after_kafka_closes_the_task_and_the_commit_stands(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app(STORES)
    acknowledged(host(app, 1))
    task = app.opened()
    before = task.marker
    monkeypatch.setenv("HOLDFAST_FAILPOINTS", "commit.after_kafka=raise")
    with pytest.raises(RuntimeError):
        task.commit(nth(before, 2))
    monkeypatch.delenv("HOLDFAST_FAILPOINTS")
    assert not task.is_open
    assert task.marker == before, "what was not applied is not shown"
    task.open()
    assert task.commit(nth(before, 2)).batch_number == 2
    task.close()
    check(app, 2)


@pytest.mark.full
def test_killed_at_random_instants(make_app: MakeApp) -> None:
    app = make_app(STORES)
    dice, done = random.Random(3), 0  # noqa: S311 - a repeatable dice
    for _ in range(8):
        process = host(app, 10_000)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(dice.uniform(0, 0.3))
        process.kill()
        seen = [done, *acknowledged(process)]
        task = app.opened()
        assert task.marker.batch_number >= max(seen), "an acknowledged commit is never lost"
        done = task.marker.batch_number
        task.close()
        check(app, done)
    assert done > 8
