"""A changelog that loses its first records while it is read: a new plan, never a wrong state."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from state_lib.errors import StateCorrupt
from state_lib.kafka import ends
from state_lib.restore.replay import Replay
from state_lib.specs import StoreSpec
from state_lib.task import StateTask
from tests.integration.conftest import MakeApp
from tests.support.apps import HOUR, NOON, WIN, App, batch, digests, win
from tests.support.counting import Counting
from tests.support.filled import filled
from tests.support.waiting import until


def left_behind(app: App, elsewhere: Path) -> tuple[StateTask, int]:
    """A closed task of windows, as it was two commits ago, and where the last of them begins."""
    task = filled(app, 2)
    task.close()
    shutil.copytree(task.path, elsewhere)
    task.open()
    for key in ("later", "last"):
        task.commit(batch(task.marker, {"win": win((key, NOON + HOUR, "1"))}))
    where, end = (app.topic("win"), 0), task.marker.cut[app.topic("win")][0] + 1
    until(lambda: ends(app.kafka.admin(), [where])[where] == end)  # the control record comes later
    task.close()
    shutil.rmtree(task.path)
    shutil.copytree(elsewhere, task.path)
    return task, end - 2


def moves(
    monkeypatch: pytest.MonkeyPatch, app: App, replay: str, offset: int
) -> list[tuple[int, int]]:
    """The log of windows moves on to an offset when it is about to be read; which ranges were."""
    before, asked = getattr(Replay, replay), list[tuple[int, int]]()

    def moved(self: Replay, spec: StoreSpec, start: int, end: int, *more: int) -> int:
        asked.append((start, end))
        if len(asked) == 1:
            cut = TopicPartition(app.topic("win"), 0, offset)
            for future in app.kafka.admin().delete_records([cut]).values():
                future.result()
        return int(before(self, spec, start, end, *more))

    monkeypatch.setattr(Replay, replay, moved)
    return asked


def test_a_log_that_moves_on_while_a_tail_is_replayed(
    make_app: MakeApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers delete windows by age at any moment: what was planned is not there any more."""
    app = make_app([WIN])
    task, last = left_behind(app, tmp_path / "old")
    asked = moves(monkeypatch, app, "tail", last)
    listener = Counting()
    task = app.opened(listener=listener)
    assert len(asked) == 1, "by the plan it was a tail"
    assert asked[0][0] < last
    assert listener.ranges["win"] == (last, asked[0][1]), "rebuilt from what the log still has"
    assert digests(task)["win"].entries == 1
    assert [p.name for p in task.path.parent.iterdir()] == ["0"], "nothing is left lying about"
    before = digests(task)
    app.close()
    again = Counting()
    assert digests(app.opened(listener=again)) == before
    assert again.records == {}


def test_a_log_that_moves_on_while_all_of_it_is_replayed(
    make_app: MakeApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next attempt, which a host makes by itself, plans anew."""
    app = make_app([WIN])
    task, last = left_behind(app, tmp_path / "old")
    shutil.rmtree(task.path)
    asked = moves(monkeypatch, app, "full", last)
    listener = Counting()
    task = app.task(listener=listener)
    with pytest.raises(StateCorrupt, match="is not in the log any more"):
        task.open()
    assert len(listener.errors) == 1
    assert not task.is_open
    assert not task.path.exists(), "what was built so far counts for nothing"
    task.open()
    assert len(asked) == 2
    assert asked[0][0] < last
    assert asked[1][0] == last, "planned anew"
    assert digests(task)["win"].entries == 1
    assert [p.name for p in task.path.parent.iterdir()] == ["0"]
