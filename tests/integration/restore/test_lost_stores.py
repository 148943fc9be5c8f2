"""Stores that are lost or corrupt: they wait for a decision, and stay where they are."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from state_lib.errors import InvalidRequest, Quarantined, StateCorrupt, Unavailable
from state_lib.host.reads import read_page
from state_lib.restore import facts
from state_lib.restore.options import RestoreOptions
from state_lib.restore.plan import CHANGELOG, LOCAL
from state_lib.restore.replay import Replay
from state_lib.specs import StoreSpec
from state_lib.stores.selection import KeyRange
from state_lib.task import StateTask
from tests.integration.conftest import MakeApp
from tests.support.apps import KV, WIN, App, batch, digests, kv
from tests.support.directories import WAITS, bad_blocks, beside
from tests.support.filled import filled


def test_a_lost_store_waits_for_a_decision(make_app: MakeApp) -> None:
    app = make_app([KV, WIN])
    task = filled(app)
    before = digests(task)
    app.close()
    shutil.rmtree(task.path)
    task = app.task(restore=WAITS)
    written = task.plan().offsets
    for _ in range(2):
        with pytest.raises(Quarantined, match=f"holdfast restore plan {app.name} --task 0") as lost:
            task.open()
        assert "no directory" in lost.value.details["reason"]
        assert f"by Airflow's DAG {app.name}_restore if there is one" in lost.value.message
    assert task.plan().offsets == written, "nothing was written"
    assert beside(task) == []
    task.restore(task.plan())
    assert digests(task) == before
    app.close()
    assert digests(app.opened(restore=WAITS)) == before, "it is settled again"


def test_a_lost_store_that_waits_asks_no_storage(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its host tries every few seconds, and meanwhile nobody could plan: storage may be silent."""
    app = make_app([KV])
    task = filled(app)
    app.close()
    shutil.rmtree(task.path)
    asked: list[object] = []

    def survey(*what: object) -> tuple[()]:
        asked.append(what)
        return ()

    monkeypatch.setattr(facts, "survey", survey)
    url = (app.root / "snapshots").as_uri()
    task = app.task(restore=RestoreOptions(mode="orchestrated", snapshots_url=url))
    with pytest.raises(Quarantined, match="no directory"):
        task.open()
    assert asked == []
    assert task.plan().source == CHANGELOG
    assert len(asked) == 1, "who plans does"


def test_a_corrupt_store_waits_and_stays_where_it_is(make_app: MakeApp) -> None:
    app = make_app([KV])
    task = filled(app)
    before = digests(task)
    task.flush()
    app.close()
    (task.path / "CURRENT").write_text("MANIFEST-999999\n")
    task = app.task(restore=WAITS)
    with pytest.raises(Quarantined, match="MANIFEST"):
        task.open()
    assert beside(task) == ["0"]
    plan = task.plan()
    assert [c.verdict for c in plan.candidates] == ["not valid", "chosen"]
    task.restore(plan)
    assert digests(task) == before
    assert beside(task) == ["0"]


def closed(app: App, task: StateTask) -> Path:
    """Its directory."""
    app.close()
    return task.path


def scanned(task: StateTask) -> None:
    list(task.scan("kv")[1])


def paged(task: StateTask) -> None:
    read_page([task], "kv", KeyRange(), 10)


@pytest.mark.parametrize("read", [scanned, paged])
def test_a_bad_block_that_is_read_leads_to_quarantine(
    make_app: MakeApp, read: Callable[[StateTask], None]
) -> None:
    app = make_app([KV])
    task = filled(app)
    before = digests(task)
    task.flush()
    app.close()
    bad_blocks(task.path)
    task = app.opened(restore=WAITS)
    with pytest.raises(Unavailable, match="checksum"):
        read(task)
    with pytest.raises(Quarantined, match="checksum"):
        task.open()
    plan = task.plan()
    (discarded,) = plan.discards
    assert discarded.startswith("what was set aside (")
    task.restore(plan)
    assert digests(task) == before
    assert beside(task) == ["0"]


@pytest.mark.parametrize("asked", [False, True], ids=["by itself", "by a plan"])
def test_a_directory_that_opens_and_is_corrupt_is_not_taken_for_valid_again(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, *, asked: bool
) -> None:
    """RocksDB reads blocks when they are needed: here, while the tail is replayed."""
    app = make_app([KV])
    kept = shutil.copytree(closed(app, filled(app)), app.root / "kept")
    task = app.opened()
    task.commit(batch(task.marker, {"kv": kv(("late", "1"))}))
    before = digests(task)
    shutil.rmtree(closed(app, task))
    kept.rename(task.path)  # as after a kill
    task = app.task(restore=WAITS)
    plan = task.plan()
    assert (plan.source, len(plan.steps)) == (LOCAL, 1)

    def corrupt(replay: Replay, *_: object) -> int:
        raise StateCorrupt("a block has another checksum", path=str(replay.stores.path))

    with monkeypatch.context() as bad:
        bad.setattr(Replay, "tail", corrupt)
        with pytest.raises(InvalidRequest if asked else Quarantined, match="another checksum"):
            task.restore(plan) if asked else task.open()
    with pytest.raises(Quarantined, match="another checksum"):
        task.open()
    plan = task.plan()
    assert plan.source == CHANGELOG
    assert plan.discards, "somebody is asked"
    task.restore(plan)
    assert digests(task) == before
    assert beside(task) == ["0"]


def test_new_and_moved_tasks_build_themselves(make_app: MakeApp) -> None:
    app = make_app([KV])
    task = app.opened(restore=WAITS)
    assert task.marker.settled is False
    app.close()
    shutil.rmtree(task.path)
    app.opened(restore=WAITS)  # it never had anything to lose
    app.close()
    before = digests(filled(app))
    app.close()
    moved = app.opened(host="host-2", restore=WAITS)
    assert digests(moved) == before
    app.close()
    assert app.opened(host="host-2", restore=WAITS).marker.batch_number == 6


def test_a_store_in_memory_is_never_lost(make_app: MakeApp) -> None:
    memory = StoreSpec("kv", backend="memory")
    app = make_app([memory])
    task = filled(app)
    before = digests(task)
    app.close()
    shutil.rmtree(task.path)
    assert digests(app.opened(restore=WAITS)) == before
