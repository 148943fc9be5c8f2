"""A host that tells a story tells now and then that it is alive."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from state_lib.changelog.memory import MemoryLog
from state_lib.changelog.topics import plan_topics
from state_lib.errors import Unavailable
from state_lib.host import restores
from state_lib.protocol.wire import ALIVE
from state_lib.specs import Topology
from state_lib.task import StateTask, TaskContext
from tests.support.apps import KV


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateTask:
    monkeypatch.setattr(restores, "BEAT_S", 0.1)
    topology = Topology("app", 1, (KV,))
    log = MemoryLog({plan.name: plan.partitions for plan in plan_topics(topology)})
    return StateTask(TaskContext(log, "host-1", tmp_path), topology, 0)


def test_at_its_begin_and_while_nothing_happens(task: StateTask) -> None:
    go = threading.Event()
    told = restores._told(task, lambda: {"over": go.wait(60)})
    assert next(told) == ALIVE
    assert [next(told) for _ in range(3)] == [ALIVE] * 3
    task.progress.on_restore_start("app/0", "kv", 0, 5)
    while (event := next(told)) == ALIVE:
        pass
    assert event == {"event": "start", "task": "app/0", "store": "kv", "start": 0, "end": 5}
    go.set()
    rest = [one for one in told if one != ALIVE]
    assert rest == [{"event": "done", "task": "app/0", "over": True}]


def test_what_ends_it_is_raised_after_that(task: StateTask) -> None:
    def fails() -> dict[str, object]:
        raise Unavailable("the disk is full")

    told = restores._told(task, fails)
    assert next(told) == ALIVE
    with pytest.raises(Unavailable, match="disk is full"):
        list(told)


def test_it_has_begun_before_anything_is_told(task: StateTask) -> None:
    """Whoever asks and leaves at once has asked."""
    begun = threading.Event()

    def action() -> dict[str, object]:
        begun.set()
        return {}

    told = restores._told(task, action)
    next(told)
    told.close()  # type: ignore[attr-defined] # a generator
    assert begun.wait(10)
