"""Restores that somebody asks for, and what is refused."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from state_lib.errors import (
    Busy,
    InvalidRequest,
    LogLost,
    NotFound,
    PlanStale,
    Unavailable,
)
from state_lib.restore.facts import free_bytes
from state_lib.restore.local import built_by
from state_lib.restore.lock import restore_lock
from state_lib.restore.plan import CHANGELOG, LOCAL
from state_lib.restore.replay import Replay
from state_lib.task import StateTask
from tests.integration.conftest import MakeApp
from tests.support import lost
from tests.support.apps import KV, TS, WIN, App, batch, digests, kv
from tests.support.counting import Counting
from tests.support.directories import WAITS, beside
from tests.support.filled import filled
from tests.support.held import HeldReplay
from tests.support.waiting import SLOWNESS

REPOSITORY = Path(__file__).parents[3]


def test_an_open_task_needs_nothing(make_app: MakeApp) -> None:
    app = make_app([KV, TS, WIN])
    task = filled(app)
    plan = task.plan()
    assert (plan.source, plan.steps, plan.discards) == (LOCAL, (), ())
    assert plan.is_nothing
    assert (plan.epoch, plan.batch_number) == (task.marker.epoch, task.marker.batch_number)
    stores = task._held.stores
    assert task.restore(plan) == task.marker
    assert task._held.stores is stores, "it was not even closed"


def test_a_restore_from_the_changelog_on_request(make_app: MakeApp) -> None:
    app = make_app([KV, TS, WIN])
    listener = Counting()
    task = filled(app)
    before, marker = digests(task), task.marker
    app.close()
    task = app.opened(listener=listener)
    plan = task.plan(CHANGELOG)
    assert plan.source == CHANGELOG
    assert plan.discards
    assert plan.records >= 3 * 6
    assert listener.records == {}
    assert task.restore(plan).batch_number == marker.batch_number
    assert digests(task) == before
    assert set(listener.ended) == {"kv", "ts", "win"}
    assert (
        task.commit(batch(task.marker, {"kv": kv(("new", "1"))})).batch_number
        == marker.batch_number + 1
    )
    assert beside(task) == ["0"]


def test_commits_between_plan_and_run_are_in_the_restored_state(make_app: MakeApp) -> None:
    app = make_app([KV])
    task = filled(app)
    plan = task.plan(CHANGELOG)
    task.commit(batch(task.marker, {"kv": kv(("late", "1"))}))
    before = digests(task)
    task.restore(plan)
    assert digests(task) == before
    assert task.get_many("kv", [b"late"])[1] == [b"1"]


def test_a_plan_is_carried_out_once(make_app: MakeApp) -> None:
    app = make_app([KV])
    listener = Counting()
    filled(app)
    app.close()
    task = app.opened(listener=listener)
    plan = task.plan(CHANGELOG)
    task.restore(plan)
    stores = task._held.stores
    assert task.restore(plan) == task.marker
    assert task._held.stores is stores
    app.close()
    task = app.task(restore=WAITS)
    assert task.restore(plan).batch_number == task.marker.batch_number, (
        "by another process it is opened, no more"
    )
    assert built_by(task.path) == plan.id
    app.close()
    shutil.rmtree(task.path)
    task = app.task(restore=WAITS)
    task.restore(plan)  # what it had built is gone: then it is as it was when it was made
    assert task.is_open
    app.close()
    (task.path / "CURRENT").write_text("MANIFEST-999999\n")
    with pytest.raises(PlanStale, match="was lost since"):
        app.task(restore=WAITS).restore(plan)


def test_a_plan_for_a_lost_directory_replaces_none(make_app: MakeApp) -> None:
    app = make_app([KV])
    task = filled(app)
    before = digests(task)
    app.close()
    kept = task.path.rename(task.path.with_name("kept"))
    task = app.task(restore=WAITS)
    plan = task.plan()
    assert plan.is_rescue
    kept.rename(task.path)
    with pytest.raises(PlanStale, match="it would replace the present directory"):
        task.restore(plan)
    assert beside(task) == ["0"]
    task.open()
    stores = task._held.stores
    assert task.restore(plan) == task.marker
    assert task._held.stores is stores, "it is open again: nothing is left to do"
    app.close()
    (task.path / "CURRENT").write_text("MANIFEST-999999\n")
    task = app.task(restore=WAITS)
    with pytest.raises(PlanStale, match="it would replace the present directory"):
        task.restore(plan)
    assert beside(task) == ["0"]
    task.restore(task.plan())
    assert digests(task) == before


def test_a_plan_of_another_task_is_refused(make_app: MakeApp) -> None:
    app = make_app([KV])
    task, plan = filled(app), filled(make_app([KV])).plan(CHANGELOG)
    with pytest.raises(InvalidRequest, match=f"not for {app.name}/0"):
        task.restore(plan)
    assert task.is_open


def test_a_source_that_is_not_valid_is_refused_and_nothing_changes(make_app: MakeApp) -> None:
    app = make_app([KV])
    task = filled(app)
    task.close()
    shutil.rmtree(task.path)
    plan = task.plan()
    assert plan.source == CHANGELOG
    with pytest.raises(InvalidRequest, match="no directory"):
        task.plan(LOCAL)
    with pytest.raises(InvalidRequest, match="tape"):
        task.plan("tape")
    assert beside(task) == []
    task.restore(plan)
    assert task.is_open


def test_a_changelog_that_was_made_again_is_no_source_of_a_living_task(make_app: MakeApp) -> None:
    """Its whole copy would be discarded for what is empty."""
    app = make_app([KV, WIN])
    task = filled(app)
    before = digests(task)
    (known, _) = task.plan().offsets[app.topic("kv")]
    lost.made_again(app, app.topic("kv"))
    seen = re.escape(f"created again (its id was {known}, is ")
    way_out = rf"{seen}.*'holdfast repair changelog {app.name} --task 0'"
    with pytest.raises(LogLost, match=way_out):
        task.plan()
    with pytest.raises(InvalidRequest, match=seen):
        task.plan(CHANGELOG)
    assert digests(task) == before, "it answers as before"
    assert beside(task) == ["0"]


@contextmanager
def stuck(app: App, monkeypatch: pytest.MonkeyPatch) -> Iterator[StateTask]:
    """A task whose restore stands still until the block ends."""
    task = filled(app)
    held = HeldReplay(monkeypatch)
    plan = task.plan(CHANGELOG)
    thread = threading.Thread(target=task.restore, args=[plan])
    thread.start()
    try:
        held.wait()
        yield task
    finally:
        held.go.set()
        thread.join(60 * SLOWNESS)


def test_one_restore_at_a_time(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    app = make_app([KV])
    other = make_app([KV])
    fellow = filled(other)
    with stuck(app, monkeypatch) as task:
        for refused in (task.plan, lambda: task.restore(fellow.plan(CHANGELOG))):
            with pytest.raises(Busy, match="already"):
                refused()
        with pytest.raises(Unavailable, match="not open yet"):
            task.get_many("kv", [b"k1"])
        with pytest.raises(Unavailable, match="not open yet"):
            task.commit(batch(task.marker))
        assert fellow.commit(batch(fellow.marker)).batch_number == 7, "others go on meanwhile"
    assert task.is_open
    assert task.plan().is_nothing


def test_one_restore_at_a_time_across_processes(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app([KV])
    with stuck(app, monkeypatch) as task:
        servers = str(app.kafka.properties["bootstrap.servers"])
        done = subprocess.run(
            [
                sys.executable, "-m", "tests.support.restorer", servers, str(app.root / "host-1"),
                json.dumps(app.topology.to_json()),
            ],
            cwd=REPOSITORY, env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 1
        assert f"Busy: a restore of {app.name}/0 is running already" in done.stderr
        assert f"process {os.getpid()}" in done.stderr
    assert task.commit(batch(task.marker)).batch_number == 7, "the other one fenced nobody"


def test_a_lock_ends_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "app" / "0"
    with restore_lock(path):
        with pytest.raises(Busy), restore_lock(path):
            pass
        assert [p.name for p in path.parent.iterdir()] == ["0.lock"]
    assert list(path.parent.iterdir()) == []
    (path.parent / "0.lock").write_text("12345")  # its process was killed
    with restore_lock(path):
        pass


# ---------------------------------------------------------------- disk and Kafka


def test_a_disk_that_is_too_small_is_seen_before(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app([KV])
    listener = Counting()
    task = filled(app)
    before = digests(task)
    app.close()
    (task.path / "CURRENT").unlink()
    task = app.task(listener=listener)
    with monkeypatch.context() as patched:
        patched.setattr("state_lib.restore.facts.free_bytes", lambda _path: 1 << 20)
        with pytest.raises(Unavailable, match=r"has 1 MiB free, .* needs about") as small:
            task.open()
    assert small.value.details["needed_bytes"] > small.value.details["free_bytes"]
    assert listener.records == {}
    assert "1 MiB free" in listener.errors[0]
    assert beside(task) == ["0"], "nothing was set aside"
    task.open()
    assert digests(task) == before


def test_free_space_is_that_of_the_nearest_folder(tmp_path: Path) -> None:
    seen = free_bytes(tmp_path / "not" / "there")
    assert abs(seen - free_bytes(tmp_path)) < 1 << 30, "others write to this disk meanwhile"


def test_a_failed_request_leaves_what_was_there(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app([KV])
    task = filled(app)
    before, plan = digests(task), task.plan(CHANGELOG)

    def away(*_: object) -> int:
        raise Unavailable("Kafka is away")

    with monkeypatch.context() as patched:
        patched.setattr(Replay, "full", away)
        with pytest.raises(Unavailable, match="away"):
            task.restore(plan)
    assert not task.is_open
    counted = Counting()
    task.close()
    task = app.opened(listener=counted)
    assert (digests(task), counted.records) == (before, {}), "the directory was not touched"
    assert beside(task) == ["0"]


def test_a_host_that_stops_ends_a_restore(make_app: MakeApp) -> None:
    app = make_app([KV])
    task = filled(app)
    app.close()
    shutil.rmtree(task.path)
    task = app.task()
    task._context.stopping.set()
    with pytest.raises(Unavailable, match="its host stops"):
        task.open()
    task._context.stopping.clear()
    task.open()


def test_a_retired_task_leaves_no_trace(make_app: MakeApp) -> None:
    app = make_app([KV])
    task = filled(app)
    plan = task.plan(CHANGELOG)
    task.retire()
    shutil.rmtree(task.path.parent)
    for again in (task.open, task.plan, lambda: task.restore(plan)):
        with pytest.raises(NotFound, match="was removed"):
            again()
    assert not task.path.parent.exists()
