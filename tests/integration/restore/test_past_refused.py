"""Going back in time: what is refused, and that nothing has changed then."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, TopicPartition

from state_lib.changelog.admin import set_topic_config
from state_lib.changelog.progress import ProgressLog
from state_lib.changelog.topics import progress_topic
from state_lib.errors import (
    Busy,
    HoldfastError,
    InvalidRequest,
    NotFound,
    SnapshotInvalid,
    StorageUnavailable,
    Superseded,
    TopicRecreated,
)
from state_lib.kafka import describe, ends, starts
from state_lib.protocol.marker import RESTORING
from state_lib.protocol.positions import Positions
from state_lib.restore.options import RestoreOptions
from state_lib.restore.past import reaching
from state_lib.restore.plan import CHANGELOG
from state_lib.snapshots.manifest import Manifest
from state_lib.task import rewriting
from state_lib.task.rewriting import Rewriting
from tests.integration.conftest import MakeApp
from tests.support.apps import KV, TS, WIN, digests
from tests.support.lost import deleted, made_again
from tests.support.past import Traveller, fill, traveller
from tests.support.waiting import SLOWNESS, until


def away(one: Traveller, numbers: int = 3) -> Manifest:
    """A snapshot of some batches ago."""
    one.commits(range(numbers))
    taken = one.snapshot()
    one.commits(range(numbers, numbers + 3))
    return taken


def refused(one: Traveller, snapshot: str, kind: type[HoldfastError], *said: str) -> None:
    """By the plan, and without a trace."""
    before, marker = digests(one.task), one.task.marker
    with pytest.raises(kind) as error:
        one.plan(snapshot)
    for words in said:
        assert words in error.value.message, error.value.message
    assert (one.task.marker, digests(one.task)) == (marker, before)
    assert one.task.opening().newest_marker() == marker, "nothing was written"
    one.commit(marker.batch_number - 1)


def cut(one: Traveller, topic: str, offset: int) -> None:
    admin, place = one.app.kafka.admin(), (topic, 0)
    for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result()
    assert starts(admin, [place])[place] == offset


def test_a_source_that_does_not_reach_back(make_app: MakeApp) -> None:
    one = traveller(make_app)
    taken = away(one)
    cut(one, one.source, 30)
    assert one.plan(taken.id).records == 30, "exactly there it does"
    cut(one, one.source, 31)
    refused(one, taken.id, InvalidRequest, f"{one.source}/0 holds offsets [31, 1000)", "[30, 60)")


def test_a_source_that_is_another_one(make_app: MakeApp) -> None:
    one = traveller(make_app)
    taken = away(one)
    known = one.task.marker.topic_ids[one.source]
    deleted(one.app, one.source)
    with pytest.raises(HoldfastError, match="does not exist"):
        one.plan(taken.id)
    one.app.kafka.admin().create_topics(new(one.source))[one.source].result()
    fill(one.app, one.source, 200)
    before = one.task.marker
    with pytest.raises(TopicRecreated, match="cannot be read again") as error:
        one.plan(taken.id)
    assert error.value.details["expected_id"] == known
    assert one.task.marker == before


def new(topic: str) -> list:  # type: ignore[type-arg]
    from confluent_kafka.admin import NewTopic  # noqa: PLC0415

    return [NewTopic(topic, 1, 1)]


def test_batches_that_nobody_recorded(make_app: MakeApp) -> None:
    one = traveller(make_app)
    taken = away(one)
    topic = progress_topic(one.app.name)
    records = ProgressLog(one.app.kafka, one.app.name).read()
    cut(one, topic, records[4].offset)
    refused(one, taken.id, InvalidRequest, topic, "{'0': 30}", "judged anew")


def test_batches_are_looked_for_in_the_progress_topic_that_is_there(make_app: MakeApp) -> None:
    """It was made anew: offsets of the one before mean nothing in it."""
    one = traveller(make_app)
    one.commits(range(3))
    taken, topic = one.snapshot(), progress_topic(one.app.name)
    before = describe(one.app.kafka.admin(), [topic])[topic].id
    made_again(one.app, topic)
    del one.progress
    one.commits(range(3, 7))
    assert taken.marker.recorded == 2, "there is one of this offset, which is another"
    plan = one.plan(taken.id)
    assert (plan.batches, plan.records) == (4, 40)
    timed = replace(plan, ticks=True, recorded_in=before)
    with pytest.raises(InvalidRequest, match=f"{topic} was made anew: ticks"):
        reaching(one.app.kafka, timed)


def test_a_source_that_grew(make_app: MakeApp) -> None:
    one = traveller(make_app)
    taken = away(one)
    wider = Positions({**one.task.marker.positions, (one.source, 1): 0})
    one.task._held.marker = replace(one.task.marker, positions=wider)
    with pytest.raises(InvalidRequest, match="source partitions") as error:
        one.task.plan_past(taken.id)
    assert f"('{one.source}', 1)" in error.value.message


@pytest.mark.parametrize(
    ("becomes", "says"),
    [
        ([KV, TS], "does not hold the stores ['ts']"),
        ([replace(KV, kind="timestamped-key-value")], "kind="),
        ([replace(KV, value_serde="int64")], "value_serde="),
    ],
)
def test_stores_that_were_others(make_app: MakeApp, becomes: list, says: str) -> None:  # type: ignore[type-arg]
    one = traveller(make_app)
    taken = away(one)
    one.task._declared.topology = replace(one.task.topology, stores=tuple(becomes))
    with pytest.raises(InvalidRequest) as error:
        one.task.plan_past(taken.id)
    assert says in error.value.message


def test_windows_of_another_retention(make_app: MakeApp) -> None:
    one = traveller(make_app, [WIN])
    taken = away(one)
    longer = replace(WIN, retention_ms=2 * WIN.retention_ms)
    one.task._declared.topology = replace(one.task.topology, stores=(longer,))
    with pytest.raises(InvalidRequest, match="laid out as"):
        one.task.plan_past(taken.id)


def rot(folder: Path, _: Manifest) -> None:
    for file in folder.glob("files/*"):
        file.write_bytes(bytes(file.stat().st_size))


def lose_one(folder: Path, _: Manifest) -> None:
    next(iter(sorted(folder.glob("files/*")))).unlink()


def tear(folder: Path, taken: Manifest) -> None:
    path = folder / "manifests" / f"{taken.id}.json"
    path.write_bytes(path.read_bytes()[:-40])


@pytest.mark.parametrize("harm", [rot, lose_one, tear])
def test_a_damaged_snapshot(make_app: MakeApp, harm: Callable[[Path, Manifest], None]) -> None:
    one = traveller(make_app)
    taken = away(one)
    harm(one.app.root / "snapshots" / one.app.name / "0", taken)
    before = digests(one.task), one.task.marker
    with pytest.raises(SnapshotInvalid):
        one.task.go_back(one.request(taken.id))
    assert one.task.is_open, "it was not even closed"
    assert (digests(one.task), one.task.marker) == before


def test_no_such_snapshot_and_no_storage(make_app: MakeApp) -> None:
    one = traveller(make_app)
    taken = away(one)
    refused(one, "20200101T000000000Z-00000000", NotFound, taken.id)
    with pytest.raises(NotFound, match=taken.id):
        one.task.go_back(one.request("20200101T000000000Z-00000000"))
    assert one.task.is_open
    one.task._context = replace(one.task._context, restore=RestoreOptions())
    with pytest.raises(InvalidRequest, match="HOLDFAST_SNAPSHOTS_URL"):
        one.task.plan_past(taken.id)


def test_a_driver_that_claimed_since(make_app: MakeApp) -> None:
    one = traveller(make_app)
    taken = away(one)
    past = one.request(taken.id)
    marker = one.claim()
    with pytest.raises(Superseded, match=f"epoch {marker.epoch} has"):
        one.task.go_back(past)
    assert one.task.marker == marker


@contextmanager
def stuck(one: Traveller, taken: Manifest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A task that is on its way, until the block ends."""
    begun, go = threading.Event(), threading.Event()
    finish = Rewriting.finish

    def waits(*arguments: object) -> object:
        begun.set()
        assert go.wait(60 * SLOWNESS)
        return finish(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Rewriting, "finish", waits)
    thread = threading.Thread(target=one.task.go_back, args=[one.request(taken.id)])
    thread.start()
    try:
        assert begun.wait(60 * SLOWNESS)
        yield
    finally:
        go.set()
        thread.join(60 * SLOWNESS)


def test_while_another_one_runs(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    one = traveller(make_app)
    taken = away(one)
    plan = one.task.plan(CHANGELOG)
    with stuck(one, taken, monkeypatch):
        for ask in (
            lambda: one.task.go_back(one.request(taken.id)),
            lambda: one.task.restore(plan),
            one.task.plan,
        ):
            with pytest.raises(Busy, match="restoring"):
                ask()
        with pytest.raises(HoldfastError, match="not open"):
            one.task.get_many("kv", [b"k1"])
        assert one.task.past == taken.id
    assert not one.task.past
    assert one.task.marker.back["snapshot"] == taken.id


def test_storage_that_goes_once_it_was_begun(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task stays closed and says why, whoever opens it; with the storage it goes on."""
    one = traveller(make_app, [KV, WIN])
    then = one.commits(range(3))
    taken = one.snapshot()
    one.commits(range(3, 9))
    folder = one.app.root / "snapshots"
    with monkeypatch.context() as armed:
        armed.setenv("HOLDFAST_FAILPOINTS", "past.after_begin=raise")
        with pytest.raises(RuntimeError):
            one.task.go_back(one.request(taken.id))
    hidden = folder.rename(folder.with_name("hidden"))
    folder.touch()
    for _ in range(2):
        with pytest.raises((StorageUnavailable, NotFound)):
            one.task.open()
        assert one.task.past == taken.id
        assert one.task.opening().newest_marker().state == RESTORING
    folder.unlink()
    hidden.rename(folder)
    one.task.open()
    assert digests(one.task) == then
    assert one.from_scratch() == then


def test_a_store_that_is_added_on_the_way(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver of newer code claims while the task is closed: what is new was empty then."""
    one = traveller(make_app, [KV, WIN])
    then = one.commits(range(3))
    taken = one.snapshot()
    one.commits(range(3, 5))
    with monkeypatch.context() as armed:
        armed.setenv("HOLDFAST_FAILPOINTS", "past.after_begin=raise")
        with pytest.raises(RuntimeError):
            one.task.go_back(one.request(taken.id))
    longer = replace(WIN, retention_ms=2 * WIN.retention_ms)
    one.app.topology = replace(one.app.topology, stores=(KV, longer))
    assert one.task.declare(one.app.topology)
    with pytest.raises(InvalidRequest, match="declare the store as it was"):
        one.task.open()
    one.app.topology = replace(one.app.topology, stores=(KV, WIN, TS))
    one.app.create()
    assert one.task.declare(one.app.topology)
    one.task.open()
    now = digests(one.task)
    assert now.pop("ts").entries == 0
    assert now == then


def test_another_snapshot_than_was_begun_with(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way out if the first one is gone for good."""
    one = traveller(make_app, [KV, WIN])
    then = one.commits(range(2))
    other = one.snapshot()
    one.commits(range(2, 4))
    taken = one.snapshot()
    now = one.commits(range(4, 9))
    with monkeypatch.context() as armed:
        armed.setenv("HOLDFAST_FAILPOINTS", "past.after_chunk=raise")
        with pytest.raises(RuntimeError):
            one.task.go_back(one.request(taken.id))
    folder = one.app.root / "snapshots" / one.app.name / "0" / "manifests"
    (folder / f"{taken.id}.json").unlink()
    with pytest.raises(NotFound):
        one.task.open()
    one.task.go_back(one.request(other.id))
    assert digests(one.task) == then
    assert one.from_scratch() == then
    one.claim()
    assert one.commits(range(2, 9)) == now
    one.has_written(*range(9))


def test_another_snapshot_after_a_kill_that_lost_what_was_not_flushed(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log holds more of the first way back than the directory, at one and the same marker."""
    monkeypatch.setattr(rewriting, "CHUNK_RECORDS", 3)
    one = traveller(make_app, [KV])
    one.commits(range(2))
    taken = one.snapshot()
    one.commits(range(2, 5))
    then, other = digests(one.task), one.snapshot()

    def fails(at: str, act: Callable[[], object]) -> None:
        with monkeypatch.context() as armed:
            armed.setattr("state_lib.failpoints._passed", Counter())
            armed.setenv("HOLDFAST_FAILPOINTS", at)
            with pytest.raises(RuntimeError):
                act()

    path, aside = one.task.path, one.task.path.with_name("aside")
    fails("past.after_begin=raise", lambda: one.task.go_back(one.request(taken.id)))
    shutil.rmtree(path)
    fails("past.after_fetch=raise", one.task.open)
    shutil.copytree(path, aside)
    fails("past.after_chunk=raise@3", one.task.open)
    shutil.rmtree(path)
    aside.rename(path)
    folder = one.app.root / "snapshots" / one.app.name / "0" / "manifests"
    (folder / f"{taken.id}.json").unlink()
    shutil.rmtree(path.with_name("0.past"), ignore_errors=True)
    with pytest.raises(NotFound):
        one.task.open()
    one.task.go_back(one.request(other.id))
    assert digests(one.task) == then
    assert one.from_scratch() == then


def test_a_snapshot_older_than_tombstones_live(make_app: MakeApp) -> None:
    """For an ordinary restore it is too old; to go back to, it may be of any age."""
    one = traveller(make_app)
    then = one.commits(range(3))
    taken = one.snapshot()
    topic = one.app.topic("kv")
    soon = {"delete.retention.ms": "0", "segment.ms": "100", "min.cleanable.dirty.ratio": "0"}
    for key, value in soon.items():
        set_topic_config(one.app.kafka.admin(), topic, key, value)
    one.commits(range(3, 8))
    place = (topic, 0)
    end = ends(one.app.kafka.admin(), [place])[place]
    until(lambda: not _tombstones(one, end), 60, "tombstones cleaned away")
    candidates = {c.id: c for c in one.task.plan().candidates}
    assert "tombstones" in candidates[taken.id].why
    one.task.go_back(one.request(taken.id))
    assert digests(one.task) == then
    assert one.from_scratch() == then


def _tombstones(one: Traveller, end: int) -> int:
    """Those before that offset; what is written after it brings its own."""
    one.commit(int(one.task.marker.batch_number) - 1)  # the last segment is never cleaned
    return sum(m.value() is None for m in one.log("kv") if (m.offset() or 0) < end)


def test_a_lost_changelog_is_refused_before_anything_is_begun(make_app: MakeApp) -> None:
    one = traveller(make_app)
    taken = away(one)
    one.task.close()
    made_again(one.app, one.app.topic("kv"))
    with pytest.raises((HoldfastError, KafkaException), match="lost what was committed"):
        one.task.go_back(one.request(taken.id))
    assert one.task.opening().newest_marker().state == "running"
