"""The stores of a task: what expires in them, what is full, and others than before."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from state_lib.errors import StoreFull
from state_lib.keys import window_key
from state_lib.specs import StoreSpec
from state_lib.task.held import Held
from tests.integration.conftest import MakeApp
from tests.support.apps import (
    HOUR,
    KV,
    NOON,
    STAMP,
    TS,
    WIN,
    at,
    batch,
    claimed,
    digests,
    get,
    kv,
    win,
)
from tests.support.fold import fold


def test_the_clock_hides_and_flush_frees(make_app: MakeApp) -> None:
    app = make_app([WIN])
    task = app.opened()
    old, new = window_key(b"a", NOON), window_key(b"a", NOON + 9 * HOUR)
    first = task.commit(batch(claimed(task), {"win": win(("a", NOON, "1"))}))
    edge = task.commit(batch(first, clock=NOON + 4 * HOUR - 1))
    assert get(task, "win", old) == [STAMP + b"1"], "start > clock - retention"
    expired = task.commit(batch(edge, clock=NOON + 4 * HOUR))
    assert get(task, "win", old) == [None]
    assert list(task.scan("win")[1]) == []
    with task.view() as (_, stores):
        assert stores.stores["win"].get_many([old]) == [STAMP + b"1"], "hidden, not yet freed"
    task.commit(batch(expired, {"win": win(("a", NOON + 9 * HOUR, "2"))}, clock=NOON + 9 * HOUR))
    task.flush()
    with task.view() as (_, stores):
        assert stores.stores["win"].get_many([old]) == [None]
        assert len(stores.stores["win"].families()) == 1
    assert get(task, "win", new) != [None]
    before = digests(task)
    task.close()
    task.open()
    assert digests(task) == before


def test_a_full_memory_store_refuses_before_kafka(make_app: MakeApp) -> None:
    small = StoreSpec("kv", backend="memory", max_bytes=1000)
    app = make_app([small])
    task = app.opened()
    first = task.commit(batch(claimed(task), {"kv": kv(("a", "1"))}))
    with pytest.raises(StoreFull) as full:
        task.commit(batch(first, {"kv": kv(("b", "x" * 2000))}))
    assert full.value.details["store"] == "kv"
    assert task.is_open
    assert fold(app.servers, app.topic("kv")) == {b"a": b"1"}
    assert task.commit(batch(first, {"kv": kv(("b", "2"))})).batch_number == 2


def test_what_is_expired_needs_no_room(make_app: MakeApp) -> None:
    """A replay of a year within one flush interval, live and again when restored."""
    app = make_app([replace(WIN, backend="memory", max_bytes=4000)])
    task = app.opened()
    marker = claimed(task)
    for i in range(40):
        start = NOON + i * HOUR
        marker = task.commit(batch(marker, {"win": win(("a", start, "x" * 300))}, clock=start))
    before = digests(task)
    assert before["win"].entries == 4
    task.close()
    task.open()
    assert digests(task) == before


def test_a_new_store_joins_and_the_others_keep_their_state(make_app: MakeApp) -> None:
    app = make_app([KV])
    task = app.opened()
    task.commit(batch(claimed(task), {"kv": kv(("a", "1"))}))
    app.topology = replace(app.topology, stores=(KV, TS))
    app.create()
    marker = task.claim(app.topology, 1)
    assert (marker.epoch, marker.positions) == (1, at(10))
    assert get(task, "kv", b"a") == [b"1"]
    task.commit(batch(marker, {"ts": kv(("b", "2"))}))
    assert get(task, "ts", b"b") == [STAMP + b"2"]


def test_who_opens_a_task_while_its_stores_change_opens_the_new_ones(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host opens closed tasks by itself: it may come in between."""
    app = make_app([KV])
    task = app.opened()
    claimed(task)
    app.topology = replace(app.topology, stores=(KV, TS))
    app.create()
    opener = threading.Thread(target=task.open)

    def close() -> None:
        Held.close(task._held)
        opener.start()
        opener.join(1)  # it has looked at the topology by then; installing waits for the claim

    monkeypatch.setattr(task._held, "close", close)
    marker = task.claim(app.topology, 1)
    opener.join(60)
    task.commit(batch(marker, {"ts": kv(("b", "2"))}))
    assert get(task, "ts", b"b") == [STAMP + b"2"]
