"""Restores from snapshots: the same state as from the log, or another source, never a wrong one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from state_lib.errors import (
    InvalidRequest,
    NotFound,
    PlanStale,
    SnapshotInvalid,
    StorageUnavailable,
)
from state_lib.restore.local import building_of
from state_lib.restore.options import RestoreOptions
from state_lib.restore.plan import CHANGELOG, LOCAL
from state_lib.snapshots import parallel
from state_lib.snapshots.manifest import Manifest
from state_lib.snapshots.storage import Storage
from state_lib.snapshots.write import SnapshotRequest, write_snapshot
from state_lib.task import StateTask
from state_lib.task.repairing import repair_task
from tests.integration.conftest import MakeApp
from tests.support.apps import KV, TS, WIN, App, batch, digests, kv
from tests.support.counting import Counting
from tests.support.filled import filled
from tests.support.lost import made_again
from tests.support.s3 import pull_the_plug_at, s3_server

REPOSITORY = Path(__file__).parents[3]
STORES = [KV, TS, WIN, replace(KV, name="mem", backend="memory")]


def url(app: App) -> str:
    return (app.root / "snapshots").as_uri()


def snapshot(app: App, task: StateTask, to: str = "") -> Manifest:
    """As a host takes one; to another URL than `url` if one is given."""
    checkpoint = app.root / "checkpoint"
    with task.view() as (_, stores):
        stores.rocks.checkpoint(checkpoint)
    try:
        request = SnapshotRequest(to or url(app), app.topology, 0, checkpoint, "host-1")
        return write_snapshot(request).manifest
    finally:
        shutil.rmtree(checkpoint)


def lost(app: App, task: StateTask, listener: Counting, at: str = "") -> StateTask:
    """The task on its host, with its directory gone; ``at``: another URL than `url`."""
    app.close()
    shutil.rmtree(task.path)
    return app.task(listener=listener, restore=RestoreOptions("auto", at or url(app)))


def a_tail(task: StateTask) -> None:
    task.commit(batch(task.marker, {"kv": kv(("k1", None), ("k2", "tail"), ("new", "tail"))}))


def test_a_lost_directory_comes_from_the_snapshot_and_its_tail(make_app: MakeApp) -> None:
    app, seen = make_app(STORES), Counting()
    task = filled(app)
    task.commit(batch(task.marker, {"mem": kv(("m", "1"))}))
    taken = snapshot(app, task)
    a_tail(task)
    before = digests(task)
    task = lost(app, task, seen)
    plan = task.plan()
    assert (plan.source, plan.snapshot) == ("snapshot", taken.id)
    task.open()
    assert digests(task) == before
    assert seen.records == {"kv": 3, "mem": 1}, "the tail, and what is in memory"
    assert seen.fetched == (taken.size_bytes, taken.size_bytes)
    assert [p.name for p in task.path.parent.iterdir()] == ["0"]
    assert task.commit(batch(task.marker)).batch_number == 9
    task.close()
    assert digests(app.opened(restore=RestoreOptions())) == before, "it is an ordinary directory"


def test_a_lost_directory_comes_from_s3(make_app: MakeApp) -> None:
    app, seen = make_app(STORES), Counting()
    task = filled(app)
    with s3_server() as server:
        bucket = server.bucket("lost-directory")
        taken = snapshot(app, task, bucket)
        a_tail(task)
        before = digests(task)
        task = lost(app, task, seen, bucket)
        task.open()
    assert digests(task) == before
    assert seen.records["kv"] == 3, "the tail"
    assert seen.fetched == (taken.size_bytes, taken.size_bytes)


def test_the_same_digest_from_every_source(make_app: MakeApp) -> None:
    app = make_app(STORES)
    task = filled(app, 8)
    taken = snapshot(app, task)
    a_tail(task)
    before = digests(task)
    app.close()
    task = app.opened(restore=RestoreOptions("auto", url(app)))
    for source in (LOCAL, taken.id, CHANGELOG, taken.id):
        task.restore(task.plan(source))
        assert digests(task) == before, source


def rot(folder: Path, _: Manifest) -> None:
    for file in folder.glob("files/*"):
        file.write_bytes(bytes(file.stat().st_size))


def lose_one(folder: Path, _: Manifest) -> None:
    next(iter(sorted(folder.glob("files/*")))).unlink()


def tear(folder: Path, taken: Manifest) -> None:
    path = folder / "manifests" / f"{taken.id}.json"
    path.write_bytes(path.read_bytes()[:-40])


def renew(folder: Path, taken: Manifest) -> None:
    (folder / "manifests" / f"{taken.id}.json").write_bytes(b'{"format": 99}')


def swap(folder: Path, taken: Manifest) -> None:
    other = replace(taken, app="another").to_bytes()
    (folder / "manifests" / f"{taken.id}.json").write_bytes(other)


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (rot, ""),
        (lose_one, "is missing"),
        (tear, "has no readable manifest"),
        (renew, "has format 99"),
        (swap, "is that of another/0"),
    ],
)
def test_a_bad_snapshot_is_left_for_the_next_source(
    make_app: MakeApp, harm: Callable[[Path, Manifest], None], why: str
) -> None:
    """A plan says why; only contents (``rot``) are read when it is carried out."""
    app, seen = make_app([KV]), Counting()
    task = filled(app)
    taken = snapshot(app, task)
    before = digests(task)
    harm(app.root / "snapshots" / app.name / "0", taken)
    task = lost(app, task, seen)
    if why:
        of_snapshot = next(c for c in task.plan().candidates if c.id == taken.id)
        assert of_snapshot.verdict == "not valid"
        assert why in of_snapshot.why
        with pytest.raises(InvalidRequest, match=f"from {taken.id}: .*{why}"):
            task.plan(taken.id)
    with pytest.raises((SnapshotInvalid, InvalidRequest, NotFound)):
        task.restore(replace(task.plan(), source="snapshot", snapshot=taken.id))
    task.open()
    assert digests(task) == before
    assert seen.records["kv"] > 100, "all of the changelog"
    assert [p.name for p in task.path.parent.iterdir()] == ["0"]


def test_a_snapshot_of_a_changelog_that_was_made_again_is_not_used(make_app: MakeApp) -> None:
    """Its offsets are those of another log: the tail behind them would be any tail."""
    app, seen = make_app([KV, TS]), Counting()
    task = filled(app)
    taken = snapshot(app, task)
    a_tail(task)
    before = digests(task)
    task.close()
    made_again(app, app.topic("kv"))
    repair_task(task)
    task = lost(app, task, seen)
    plan = task.plan()
    of_snapshot = next(c for c in plan.candidates if c.id == taken.id)
    assert (plan.source, of_snapshot.verdict) == (CHANGELOG, "not valid")
    assert f"{app.topic('kv')} was created again" in of_snapshot.why
    with pytest.raises(InvalidRequest, match="was created again"):
        task.plan(taken.id)
    task.open()
    assert digests(task) == before


@pytest.mark.parametrize("is_set_aside", [True, False])
def test_a_plan_from_a_bad_snapshot_is_stale_and_the_next_one_is_from_elsewhere(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, is_set_aside: bool
) -> None:
    """It was whole when it was taken, and plans read no contents."""

    def refuses(*_: object) -> None:
        raise StorageUnavailable("nothing may be renamed here")

    if not is_set_aside:
        monkeypatch.setattr(Storage, "rename", refuses)
    app, seen = make_app([KV]), Counting()
    task = filled(app)
    taken = snapshot(app, task)
    before = digests(task)
    task = lost(app, task, seen)
    plan = task.plan()
    assert plan.snapshot == taken.id
    rot(app.root / "snapshots" / app.name / "0", taken)
    with pytest.raises(PlanStale, match=r"is not what would be done now: .* SHA-256"):
        task.restore(plan)
    anew = task.plan()
    assert anew.source == CHANGELOG
    if is_set_aside:
        assert "SHA-256" in next(c.why for c in anew.candidates if c.id == taken.id)
        with pytest.raises(InvalidRequest, match=f"from {taken.id}: .* is set aside"):
            task.plan(taken.id)
    else:
        assert "SHA-256" in next(c.why for c in anew.candidates if c.id == taken.id)
        assert task.plan(taken.id).snapshot == taken.id, "who wants it may try"
    task.restore(anew)
    assert digests(task) == before


def test_an_older_snapshot_stands_in_for_a_rotten_one(make_app: MakeApp) -> None:
    app, seen = make_app([KV]), Counting()
    task = filled(app)
    older = snapshot(app, task)
    a_tail(task)
    task.flush()
    newer = snapshot(app, task)
    before = digests(task)
    only = {f.sha256 for f in newer.files} - {f.sha256 for f in older.files}
    for name in only:
        file = app.root / "snapshots" / app.name / "0" / "files" / name
        file.write_bytes(bytes(file.stat().st_size))
    task = lost(app, task, seen)
    assert task.plan().snapshot == newer.id
    task.open()
    assert digests(task) == before
    assert seen.records == {"kv": 3}


def test_storage_that_is_away_keeps_nothing_closed(make_app: MakeApp) -> None:
    app, seen = make_app([KV]), Counting()
    task = filled(app)
    snapshot(app, task)
    before = digests(task)
    task = lost(app, task, seen)
    folder = app.root / "snapshots" / app.name / "0" / "manifests"
    shutil.rmtree(folder)
    folder.symlink_to(folder)  # listing it is an error
    plan = task.plan()
    assert plan.source == CHANGELOG
    assert "snapshot storage" in plan.candidates[1].why
    task.open()
    assert digests(task) == before


@pytest.mark.parametrize("comes_back", [True, False])
def test_storage_that_goes_half_way_leaves_no_trace(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, comes_back: bool
) -> None:
    """A whole restore from S3, the second time; or from the changelog, where it stays away."""
    monkeypatch.setattr(parallel, "THREADS", 1)
    app, seen = make_app([KV]), Counting()
    task = filled(app)
    with s3_server() as server:
        bucket = server.bucket(f"half-way-{comes_back}".lower())
        taken = snapshot(app, task, bucket)
        a_tail(task)
        before = digests(task)
        task = lost(app, task, seen, bucket)
        pull_the_plug_at(3, "download", server, monkeypatch)
        with pytest.raises(StorageUnavailable, match="ask again"):
            task.open()
        assert not task.path.exists()
        brought = [p for p in building_of(task.path).iterdir() if p.suffix != ".partial"]
        assert len(brought) == 2, "it failed in its middle"
        if comes_back:
            server.again()
        task.open()
        assert digests(task) == before
        assert (seen.records["kv"] == 3) == comes_back, "else all of the changelog"
        of_snapshot = task.plan().candidates[1]
        assert of_snapshot.id == (taken.id if comes_back else None)
        assert [p.name for p in task.path.parent.iterdir()] == ["0"]


@pytest.mark.parametrize(
    "point",
    [
        "restore.after_fetch",
        pytest.param("restore.during_fetch", marks=pytest.mark.full),
        pytest.param("restore.after_store", marks=pytest.mark.full),
        pytest.param("restore.before_checkpoint", marks=pytest.mark.full),
        pytest.param("restore.after_checkpoint", marks=pytest.mark.full),
        pytest.param("restore.during_swap", marks=pytest.mark.full),
        pytest.param("restore.after_swap", marks=pytest.mark.full),
    ],
)
def test_killed_while_a_snapshot_is_restored(make_app: MakeApp, point: str) -> None:
    app, seen = make_app([KV, WIN]), Counting()
    task = filled(app)
    snapshot(app, task)
    a_tail(task)
    before = digests(task)
    task = lost(app, task, seen)
    killed_at(app, point)
    task.open()
    assert digests(task) == before
    assert seen.records in ({"kv": 3}, {}), "never the whole log"
    assert [p.name for p in task.path.parent.iterdir()] == ["0"]
    assert task.commit(batch(task.marker)).batch_number == 8


@pytest.mark.parametrize(
    ("point", "replayed"),
    [
        pytest.param("restore.before_swap", {"kv": 3}, marks=pytest.mark.full),
        ("restore.before_cleanup", {}),
    ],
)
def test_killed_while_a_snapshot_replaces_what_is_corrupt(
    make_app: MakeApp, point: str, replayed: dict[str, int]
) -> None:
    """Before the swap the bad directory is in its place still, and beside it a whole one."""
    app, seen = make_app([KV, WIN]), Counting()
    task = filled(app)
    snapshot(app, task)
    a_tail(task)
    before = digests(task)
    task.flush()
    app.close()
    (task.path / "CURRENT").write_text("MANIFEST-999999\n")
    killed_at(app, point)
    left = {p.name.partition("-")[0] for p in task.path.parent.iterdir()}
    beside = "0.restoring" if replayed else "0.aside"
    assert {"0", beside} <= left, "the bad one was not removed before the new one was verified"
    task = app.opened(listener=seen, restore=RestoreOptions("auto", url(app)))
    assert digests(task) == before
    assert seen.records == replayed
    assert [p.name for p in task.path.parent.iterdir()] == ["0"]
    assert task.commit(batch(task.marker)).batch_number == 8


def killed_at(app: App, point: str) -> None:
    """Open the task in a process that is killed at a point."""
    killed = subprocess.run(
        [
            sys.executable, "-m", "tests.support.restorer",
            str(app.kafka.properties["bootstrap.servers"]), str(app.root / "host-1"),
            json.dumps(app.topology.to_json()), "", url(app),
        ],
        cwd=REPOSITORY,
        env=os.environ | {"HOLDFAST_FAILPOINTS": f"{point}=kill", "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, killed.stderr
