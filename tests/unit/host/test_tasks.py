"""What a host says of tasks that cannot be opened, and when it flushes others. No Kafka."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from state_lib.changelog.log import KafkaLog
from state_lib.changelog.memory import MemoryLog
from state_lib.changelog.topics import plan_topics
from state_lib.errors import HoldfastError, LogLost, NotFound, Quarantined, Unavailable
from state_lib.host.restores import find_loss
from state_lib.host.tasks import TaskManager, tail_of
from state_lib.kafka import Kafka
from state_lib.protocol.addresses import HostAddress
from state_lib.specs import StoreSpec, Topology
from state_lib.task import StateTask, TaskContext
from tests.support.apps import KV, batch, claimed, kv
from tests.support.waiting import until


@pytest.fixture
def manager(tmp_path: Path) -> TaskManager:
    context = TaskContext(KafkaLog(Kafka({"bootstrap.servers": "127.0.0.1:1"})), "host-1", tmp_path)
    return TaskManager(context, [HostAddress("host-1", "127.0.0.1", 1, 2)], 60.0)


def test_the_last_reason_counts(manager: TaskManager, monkeypatch: pytest.MonkeyPatch) -> None:
    topology = Topology("app", 1, (KV,))
    task = StateTask(manager.context, topology, 0)
    manager.tasks["app", 0], manager.apps["app"] = task, topology
    manager.openers.stop()  # it opens nothing by itself
    for error in (Quarantined("its store"), LogLost("its log"), Quarantined("its store")):

        def failing(error: HoldfastError = error) -> None:
            raise error

        monkeypatch.setattr(task, "open", failing)
        manager.openers.attempt(task)
        with pytest.raises(type(error)):
            manager.task("app", 0)
        assert (manager.state_of(task) == "quarantined") is isinstance(error, Quarantined)


def test_who_keeps_a_task_away_keeps_away_the_attempt_after_the_present_one(
    manager: TaskManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would wait for a restore to end, and hold one of the host's few openers."""
    topology = Topology("app", 1, (KV,))
    task = StateTask(manager.context, topology, 0)
    manager.tasks["app", 0], manager.apps["app"] = task, topology
    openers, begun, go = manager.openers, list[int](), threading.Event()

    def failing() -> None:
        begun.append(len(begun))
        go.wait(60)
        raise Unavailable("nothing is there")

    monkeypatch.setattr(task, "open", failing)
    openers.open_soon(task)
    until(lambda: begun, 60)
    with openers.kept_away(task):
        with openers.kept_away(task):
            pass
        go.set()
        until(lambda: task.name in openers.failures, 60, "the attempt has ended")
        openers.forget(task)
        openers.open_soon(task)
        assert not openers._under_way
    openers.open_soon(task)
    until(lambda: len(begun) == 2, 60, "another attempt")
    openers.stop()


def test_to_look_for_a_loss_learns_nothing(manager: TaskManager) -> None:
    """To learn an application is to open its tasks, which fences whoever has them."""
    with pytest.raises(NotFound):
        find_loss(manager, "app", 0)


@pytest.mark.parametrize(
    ("since_s", "rows", "flushed"),
    [(5.0, 30, False), (16.0, 30, True), (16.0, 5, False), (45.0, 5, False), (61.0, 1, True)],
)
def test_a_long_tail_is_flushed_sooner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, since_s: float, rows: int, flushed: bool
) -> None:
    """What a kill would have replayed counts; stores in memory do not: they are on no disk."""
    monkeypatch.setattr("state_lib.host.tasks.LONG_TAIL", 20)
    topology = Topology("app", 1, (KV, StoreSpec("small", backend="memory")))
    log = MemoryLog({plan.name: plan.partitions for plan in plan_topics(topology)})
    context = TaskContext(log, "host-1", tmp_path)
    manager = TaskManager(context, [HostAddress("host-1", "127.0.0.1", 1, 2)], 60.0)
    task = StateTask(context, topology, 0)
    try:
        task.open()
        marker = task.commit(batch(claimed(task), {"kv": kv(*((f"k{n}", "1") for n in range(90)))}))
        manager._keep(task)
        before = task.flushed
        assert before is None, "it was opened just now"
        task.flushed_at -= since_s
        task.flush()
        assert task.flushed is marker
        assert tail_of(task) == 0

        puts = kv(*((f"k{n}", "2") for n in range(rows)))
        marker = task.commit(batch(marker, {"kv": puts, "small": kv(*[("m", "1")] * 50)}))
        assert rows <= tail_of(task) <= rows + 2
        task.flushed_at -= since_s
        manager._keep(task)
        assert (task.flushed is marker) is flushed
    finally:
        task.close()
