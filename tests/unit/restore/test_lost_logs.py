"""Which topics lost what was committed, and which copy may take their place: pure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from state_lib.changelog.log import KafkaLog, LogRange
from state_lib.errors import InvalidRequest, LogLost
from state_lib.kafka import Kafka
from state_lib.protocol.marker import CommitHeader, Marker, advance
from state_lib.protocol.positions import Positions
from state_lib.restore.facts import Facts, LocalFacts
from state_lib.restore.listener import Silent
from state_lib.restore.plan import CHANGELOG, LOCAL, make_plan
from state_lib.restore.source import broken_logs, lost_logs, met
from state_lib.specs import OutputSpec, Topology
from state_lib.stores.rocksdb.options import RocksDBOptions
from state_lib.stores.task_stores import Checkpoint, TaskStores, layout_of
from state_lib.task import Puts, TaskContext, repair
from state_lib.task.loss import Found, Loss, judge
from state_lib.task.opening import Opening
from tests.support.apps import HOUR, KV, NOON, TS, WIN, batch, kv, win

APP = Topology("app", 1, (KV, WIN))
KV_LOG, WIN_LOG, COMMITS = "app-kv-changelog", "app-win-changelog", "app-commits"
LOGS = {KV_LOG: LogRange("a", 0, 100), WIN_LOG: LogRange("b", 30, 100)}
MARKER = Marker(
    epoch=3, batch_number=9, logs={KV_LOG: "a", WIN_LOG: "b"}, starts={KV_LOG: 0, WIN_LOG: 0}
)
COPY = Checkpoint(
    MARKER, {KV_LOG: ["a", 100], WIN_LOG: ["b", 90]}, {s.name: layout_of(s) for s in APP.stores}
)
NOWHERE = Kafka({"bootstrap.servers": "127.0.0.1:1"})


def lost(marker: Marker, copy: Checkpoint | None, **logs: LogRange) -> list[str]:
    return list(
        lost_logs(APP, marker, copy, {**LOGS, **{f"app-{k}-changelog": v for k, v in logs.items()}})
    )


def test_what_is_whole_is_not_lost() -> None:
    assert lost(MARKER, COPY) == []
    assert lost(MARKER, None) == []
    assert lost(replace(MARKER, logs={}), COPY) == [], "a marker of an older version"
    assert lost(replace(MARKER, batch_number=12), COPY) == [], "the copy lags"
    assert lost_logs(APP, Marker(), None, {KV_LOG: LogRange("a", 0, 0)}) == {}, "a new application"


def test_what_is_lost() -> None:
    assert lost(MARKER, None, kv=LogRange("new", 0, 100)) == [KV_LOG]
    assert lost(replace(MARKER, logs={}), COPY, kv=LogRange("new", 0, 100)) == [KV_LOG]
    assert lost(MARKER, COPY, kv=LogRange("a", 0, 99)) == [KV_LOG]
    assert lost(replace(MARKER, cut={WIN_LOG: [101, 1]}), None) == [WIN_LOG]
    assert lost(replace(MARKER, batch_number=8), COPY) == [COMMITS]
    assert lost(Marker(), None) == [COMMITS]
    assert lost(Marker(), COPY, kv=LogRange("new", 0, 0)) == [COMMITS, KV_LOG]


def test_a_log_that_ends_early_is_lost_however_long_ago_it_was_written() -> None:
    cut = {KV_LOG: [101, 2], WIN_LOG: [95, 1]}
    old = replace(MARKER, cut=cut)
    told = Marker.from_bytes(old.to_bytes().replace(b'"ends":{},', b""))
    assert told == old, "a marker of an older version"
    tick = CommitHeader(
        epoch=3, batch_number=10, from_=Positions(), to=Positions(), stream_time_ms=5
    )
    for marker in (
        old.claimed_by(4, "host-2"),
        advance(old, tick, "host-1", {}),
        advance(
            advance(old, tick, "host-1", {}),
            replace(tick, batch_number=11),
            "host-1",
            {WIN_LOG: [97, 1]},
        ),
    ):
        assert lost(marker, None) == [KV_LOG]
        assert lost(marker.owned_by("host-2", MARKER.logs), None) == [KV_LOG]
        assert marker.owned_by("host-2", {WIN_LOG: "b"}).committed.keys() == {WIN_LOG}
        assert lost(Marker.from_bytes(marker.to_bytes()), None, kv=LogRange("a", 0, 101)) == []


def test_a_log_in_doubt_is_lost_however_long_it_is() -> None:
    doubted = MARKER.doubting("host-2", [KV_LOG])
    assert lost(doubted, COPY, kv=LogRange("a", 0, 1000)) == [KV_LOG]
    assert (doubted.owner, doubted.settled, (doubted.epoch, doubted.batch_number)) == (
        "host-2",
        True,
        (3, 9),
    )
    assert judged(doubted, LOGS, COPY).why_not is None


def test_a_store_that_is_new_or_was_never_written_is_not_lost() -> None:
    known = replace(MARKER, logs={WIN_LOG: "b"}, starts={WIN_LOG: 0})
    offsets = {WIN_LOG: ["b", 90]}
    assert lost(known, replace(COPY, offsets=offsets)) == []
    assert broken_logs(APP, known, {**LOGS, KV_LOG: LogRange("a", 7, 100)}) == {}
    assert met(known, {KV_LOG: LogRange("a", 7, 100)}) == {KV_LOG: 7}
    assert lost(MARKER, COPY, win=LogRange("b", 0, 90)) == []


def test_only_windows_may_lose_their_first_records() -> None:
    assert broken_logs(APP, MARKER, LOGS) == {}
    moved = {**LOGS, KV_LOG: LogRange("a", 10, 100)}
    assert list(broken_logs(APP, MARKER, moved)) == [KV_LOG]
    assert met(MARKER, moved)[KV_LOG] == 0, "an owner that goes on from its copy forgets nothing"


def facts(logs: dict[str, LogRange], copy: Checkpoint | None, marker: Marker = MARKER) -> Facts:
    local = LocalFacts(copy, None if copy else "it is gone")
    return Facts(APP, 0, marker, logs, local, free_bytes=10**12, now=NOON)


def test_a_changelog_that_was_made_again_is_no_source() -> None:
    """It is empty, or nearly so: nobody is asked whether to discard a copy for that."""
    for topic in (KV_LOG, WIN_LOG):
        again = {**LOGS, topic: LogRange("new", 0, 0)}
        assert list(broken_logs(APP, MARKER, again)) == [topic]
        for copy in (COPY, None):
            with pytest.raises(LogLost, match=r"created again.*repair changelog"):
                make_plan(facts(again, copy))
        with pytest.raises(InvalidRequest, match="created again"):
            make_plan(facts(again, COPY), wanted=CHANGELOG)
    assert broken_logs(APP, replace(MARKER, logs={}), {**LOGS, KV_LOG: LogRange("new", 0, 0)}) == {}


def test_nothing_goes_on_beside_a_changelog_in_doubt() -> None:
    """It may have kept its id: what a repair has written of it so far is not all."""
    doubted = MARKER.doubting("host-2", [KV_LOG])
    assert list(broken_logs(APP, doubted, LOGS)) == [KV_LOG]
    for copy in (COPY, None):
        with pytest.raises(LogLost, match=r"no repair of it has ended.*repair changelog"):
            make_plan(facts(LOGS, copy, doubted))
    for wanted in (LOCAL, CHANGELOG):
        with pytest.raises(InvalidRequest, match="no repair of it has ended"):
            make_plan(facts(LOGS, COPY, doubted), wanted)


def test_a_changelog_that_was_cut_is_no_source() -> None:
    moved = {**LOGS, KV_LOG: LogRange("a", 10, 100)}
    assert make_plan(facts(moved, COPY)).source == LOCAL
    with pytest.raises(LogLost, match="before offset 10 were deleted"):
        make_plan(facts(moved, None))
    with pytest.raises(InvalidRequest, match="before offset 10 were deleted"):
        make_plan(facts(moved, COPY), CHANGELOG)
    other_layout = replace(COPY, layouts={**COPY.layouts, "kv": "memory/key-value/0"})
    with pytest.raises(LogLost):
        make_plan(facts(moved, other_layout))
    assert make_plan(facts(LOGS, None)).source == CHANGELOG


def judged(
    marker: Marker, logs: dict[str, LogRange], copy: Checkpoint | None, topology: Topology = APP
) -> Loss:
    found = Found(marker, logs, ())
    return judge(NOWHERE, topology, 0, "host-1", found, LocalFacts(copy, None))


def test_which_copy_may_take_the_place() -> None:
    again = {**LOGS, KV_LOG: LogRange("new", 0, 0)}
    assert judged(MARKER, LOGS, COPY).topics == {}
    good = judged(MARKER, again, COPY)
    assert (list(good.topics), good.why_not) == ([KV_LOG], None)
    assert Loss.from_json(orjson.loads(orjson.dumps(good.to_json()))) == good
    for loss, says in (
        (judged(MARKER, again, None), "has no copy"),
        (judged(replace(MARKER, batch_number=10), again, COPY), "stands at commit (3, 9)"),
        (
            judged(MARKER, again, replace(COPY, layouts={"kv": "rocksdb/window/5"})),
            "does not hold store 'kv'",
        ),
        (
            judged(MARKER, again, COPY, replace(APP, stores=(replace(KV, backend="memory"), WIN))),
            "in memory",
        ),
        (
            judged(Marker(), again, COPY, replace(APP, outputs=(OutputSpec("o", "kv"),))),
            "written twice",
        ),
    ):
        assert says in str(loss.why_not)


def test_chunks_are_bounded_and_hold_every_live_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair, "CHUNK_RECORDS", 3)
    topology = Topology("app", 1, (KV, TS, WIN))
    opening = Opening(
        TaskContext(KafkaLog(NOWHERE), "host-1", tmp_path), topology, 0, tmp_path, Silent()
    )
    work = repair.Repair(opening)
    stores = TaskStores(topology, tmp_path / "0", RocksDBOptions())
    pairs = [(f"k{i}", f"v{i}") for i in range(7)]
    rows = [(f"k{i}", NOON - i * HOUR, "v") for i in range(7)]
    puts: dict[str, Puts] = {"kv": kv(*pairs), "ts": kv(*pairs, time=5), "win": win(*rows)}
    stores.write(batch(Marker(), puts).changes(topology), None)
    nothing = LogRange("new", 0, 0)
    try:
        for spec, times, live in ((KV, None, 7), (TS, 5, 7), (WIN, NOON, 4)):
            chunks = list(work._chunks(stores, spec, nothing, NOON))
            assert [len(keys) for keys, _, _ in chunks[:-1]] == [3] * (len(chunks) - 1)
            wrote = {k: v for keys, values, _ in chunks for k, v in zip(keys, values, strict=True)}
            put = puts[spec.name]
            known = dict(zip(put.keys, put.values, strict=True))
            assert wrote == {k: known[k] for k in list(known)[:live]}
            assert (chunks[0][2] is None) == (times is None)
    finally:
        stores.close()
