"""The commit protocol, in-process, against a real broker."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from state_lib.changelog.admin import set_topic_config, topic_configs
from state_lib.changelog.topics import commits_topic, dead_letter_queue
from state_lib.changelog.writer import Records
from state_lib.errors import (
    InvalidRequest,
    NotFound,
    NotOwner,
    Realign,
    SerdeError,
    Superseded,
    Unavailable,
)
from state_lib.keys import window_key
from state_lib.protocol.marker import Marker
from state_lib.protocol.positions import Positions
from state_lib.task import Puts
from tests.integration.conftest import MakeApp
from tests.support.apps import (
    HOUR,
    KV,
    NOON,
    STAMP,
    TS,
    WIN,
    App,
    at,
    batch,
    claimed,
    get,
    kv,
    win,
)
from tests.support.fold import committed, fold
from tests.support.waiting import until


def markers(app: App) -> list[Marker]:
    records = committed(app.servers, commits_topic(app.name))
    return [Marker.from_bytes(m.value() or b"") for m in records]


def test_a_new_task_names_its_owner_and_takes_a_claim(make_app: MakeApp) -> None:
    app = make_app()
    task = app.opened()
    assert task.marker.owner == "host-1"
    assert (task.marker.epoch, task.marker.positions) == (-1, Positions())
    marker = claimed(task, 3)
    assert (marker.epoch, marker.batch_number) == (3, 0)
    assert claimed(task, 3) == marker, "a claim that is repeated changes nothing"
    assert [(m.epoch, m.owner) for m in markers(app)] == [(-1, "host-1"), (3, "host-1")]
    with pytest.raises(Superseded) as refused:
        claimed(task, 2)
    assert refused.value.details == {"epoch": 2, "current": 3}


def test_one_commit_is_one_transaction(make_app: MakeApp) -> None:
    app = make_app([KV, TS, WIN], outputs=["out"])
    task = app.opened()
    puts = {
        "kv": kv(("a", "1"), ("b", None)),
        "ts": kv(("a", "2")),
        "win": win(("a", NOON, "3"), ("b", NOON - HOUR, "4")),
    }
    out, dead = app.topology.outputs[0].topic, dead_letter_queue(app.name)
    outputs = [
        Records(out, [b"a"], [b"5"], [NOON]),
        Records(dead, [None], [b"?"], [NOON], [[("why", b"x")]]),
    ]
    marker = task.commit(batch(claimed(task), puts, outputs=outputs, dropped={"late": 2}))

    assert marker.positions == at(10)
    assert marker.published == {"positions": at(10).to_json(), "clock": NOON}
    assert marker.dropped == {"late": 2}
    assert marker.cut == {
        app.topic("kv"): [2, 2],
        app.topic("ts"): [1, 1],
        app.topic("win"): [2, 2],
    }
    assert markers(app)[-1] == marker == task.marker
    assert get(task, "kv", b"a", b"b", b"c") == [b"1", None, None]
    assert get(task, "ts", b"a") == [STAMP + b"2"]
    assert get(task, "win", window_key(b"a", NOON)) == [STAMP + b"3"]
    for store in (KV, TS, WIN):
        topic, timed = app.topic(store.name), store.is_timestamped
        assert fold(app.servers, topic, timestamped=timed) == dict(task.scan(store.name)[1])
    assert [(m.key(), m.value()) for m in committed(app.servers, out)] == [(b"a", b"5")]
    letter = committed(app.servers, dead)[0]
    assert (letter.key(), letter.value(), letter.headers()) == (None, b"?", [("why", b"x")])
    last = [committed(app.servers, t)[-1].offset() for t in marker.cut]
    assert last == [end - 1 for end, _ in marker.cut.values()]


def test_a_batch_without_rows_is_a_commit(make_app: MakeApp) -> None:
    app = make_app()
    task = app.opened()
    first = task.commit(batch(claimed(task), rows=5))
    tick = task.commit(batch(first, rows=0, clock=NOON + 1))
    assert (tick.batch_number, tick.positions, tick.stream_time_ms) == (2, at(5), NOON + 1)
    assert tick.cut == {}


def test_duplicates_are_acknowledged_and_not_applied(make_app: MakeApp) -> None:
    app = make_app()
    task = app.opened()
    one = batch(claimed(task), {"kv": kv(("a", "1"))})
    first = task.commit(one)
    second = task.commit(batch(first, {"kv": kv(("a", "2"))}))
    zombie = replace(one, puts={"kv": kv(("a", "zombie"))})
    assert task.commit(zombie) == second
    assert task.commit(one) == second
    assert [m.value() for m in committed(app.servers, app.topic("kv"))] == [b"1", b"2"]
    assert task.commits == 2


def test_refusals_carry_both_sides_and_change_nothing(make_app: MakeApp) -> None:
    app = make_app()
    task = app.opened()
    start = claimed(task, 5)
    first = task.commit(batch(start, {"kv": kv(("a", "1"))}))
    stale = {
        Realign: [
            batch(replace(first, positions=at(7)), {"kv": kv(("x", "1"))}),
            batch(replace(first, epoch=6), {"kv": kv(("x", "1"))}),
            batch(first, {"kv": kv(("x", "1"))}, read_at=(5, 0)),
        ],
        Superseded: [batch(replace(first, epoch=4), {"kv": kv(("x", "1"))})],
    }
    for error, batches in stale.items():
        for refused in batches:
            with pytest.raises(error) as raised:
                task.commit(refused)
            assert raised.value.details["marker"]["positions"] == at(10).to_json()
    assert task.is_open
    assert fold(app.servers, app.topic("kv")) == {b"a": b"1"}
    gap = batch(first, {"kv": kv(("b", "2"))}, n=9, read_at=(5, 1))
    assert task.commit(gap).batch_number == 9, "batches that it was parked for are skipped"


def test_what_makes_no_sense_is_refused_before_the_transaction(make_app: MakeApp) -> None:
    app = make_app([KV, WIN])
    task = app.opened()
    marker = claimed(task)
    senseless: list[tuple[str, Puts, type[Exception]]] = [
        ("nope", kv(("a", "1")), InvalidRequest),
        ("kv", Puts([b"a"], [b"1", b"2"], [NOON]), InvalidRequest),
        ("kv", Puts([b"a"], [b"1"], []), InvalidRequest),
        ("kv", Puts([b"a"], [b"1"], [None]), InvalidRequest),  # type: ignore[list-item]
        ("kv", Puts([b"a"], [b"1"], [-5]), InvalidRequest),
        ("kv", Puts([None], [b"1"], [NOON]), InvalidRequest),  # type: ignore[list-item]
        ("win", Puts([b"short"], [b"1"], [NOON]), SerdeError),
    ]
    for store, puts, error in senseless:
        with pytest.raises(error):
            task.commit(batch(marker, {store: puts}))
    foreign = [Records("somebody-elses", [b"a"], [b"1"], [NOON])]
    with pytest.raises(InvalidRequest, match="somebody-elses"):
        task.commit(batch(marker, outputs=foreign))
    assert task.marker == marker
    assert committed(app.servers, app.topic("kv")) == []
    assert task.commit(batch(marker, {"kv": kv(("a", "1"))})).batch_number == 1


def test_time_zero_is_the_same_in_store_and_changelog(make_app: MakeApp) -> None:
    app = make_app([TS])
    task = app.opened()
    task.commit(batch(claimed(task), {"ts": kv(("a", "1"), time=0)}))
    assert get(task, "ts", b"a") == [(1).to_bytes(8, "big") + b"1"]
    assert dict(task.scan("ts")[1]) == fold(app.servers, app.topic("ts"), timestamped=True)


def test_unknown_stores_and_partitions(make_app: MakeApp) -> None:
    app = make_app()
    task = app.opened()
    with pytest.raises(NotFound, match="kv"):
        task.get_many("nope", [b"a"])
    with pytest.raises(NotFound):
        task.scan("nope")
    with pytest.raises(NotFound):
        app.task(1)


def test_a_closed_task_is_unavailable(make_app: MakeApp) -> None:
    app = make_app()
    task = app.opened()
    marker = claimed(task)
    task.close()
    for call in (lambda: task.commit(batch(marker)), lambda: task.get_many("kv", [b"a"])):
        with pytest.raises(Unavailable):
            call()
    task.open()
    assert task.commit(batch(marker)).batch_number == 1


def test_only_the_newest_owner_commits(make_app: MakeApp) -> None:
    app = make_app()
    old = app.opened(host="host-1")
    first = old.commit(batch(claimed(old), {"kv": kv(("a", "1"))}))
    new = app.opened(host="host-2")
    assert new.marker.owner == "host-2"
    assert get(new, "kv", b"a") == [b"1"], "host 2 has built the state from the changelog"
    with pytest.raises(NotOwner):
        old.commit(batch(first, {"kv": kv(("a", "old"))}))
    assert not old.is_open
    second = new.commit(batch(first, {"kv": kv(("b", "2"))}))
    assert second.owner == "host-2"
    assert fold(app.servers, app.topic("kv")) == {b"a": b"1", b"b": b"2"}


def test_a_fence_that_was_no_rival_is_worth_a_retry(make_app: MakeApp) -> None:
    """A transaction that timed out is fenced too; the last marker tells the difference."""
    app = make_app()
    task = app.opened()
    first = task.commit(batch(claimed(task), {"kv": kv(("a", "1"))}))
    app.kafka.producer(**{"transactional.id": f"{app.name}-0"}).init_transactions(10)
    with pytest.raises(Unavailable, match="no other host"):
        task.commit(batch(first, {"kv": kv(("a", "2"))}))
    assert not task.is_open
    task.open()
    assert task.commit(batch(first, {"kv": kv(("a", "3"))})).batch_number == 2
    assert fold(app.servers, app.topic("kv")) == {b"a": b"3"}


def test_concurrent_copies_of_one_commit_make_one_transaction(make_app: MakeApp) -> None:
    app = make_app()
    task = app.opened()
    one = batch(claimed(task), {"kv": kv(("a", "1"))})
    answers: list[Marker] = []
    threads = [threading.Thread(target=lambda: answers.append(task.commit(one))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [m.batch_number for m in answers] == [1] * 4
    assert len(committed(app.servers, app.topic("kv"))) == 1


def test_a_task_whose_topic_takes_more_by_now_is_opened_again(make_app: MakeApp) -> None:
    """Its writer would go on refusing what the topic takes; nothing of the commit stands."""
    app = make_app()
    admin, topic = app.kafka.admin(), app.topic("kv")
    set_topic_config(admin, topic, "max.message.bytes", "20000")
    task = app.opened()
    large = batch(claimed(task), {"kv": kv(("a", "x" * 1_500_000))})
    set_topic_config(admin, topic, "max.message.bytes", "2000000")
    until(lambda: topic_configs(admin, [topic])[topic]["max.message.bytes"] == "2000000")
    with pytest.raises(Unavailable, match="takes a record of") as refused:
        task.commit(large)
    assert type(refused.value) is Unavailable, "the name that every version of a client retries"
    assert not task.is_open
    assert task.open().batch_number == 0
    assert task.commit(large).batch_number == 1
