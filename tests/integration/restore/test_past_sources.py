"""After a restore to the past: every ordinary source of a restore gives the past state."""

from __future__ import annotations

import shutil

import pytest

from state_lib.restore.plan import CHANGELOG, LOCAL
from tests.integration.conftest import MakeApp
from tests.support.apps import KV, TS, WIN, digests
from tests.support.past import MEM, traveller


@pytest.mark.parametrize("stop_after", [0, 3], ids=["at once", "when the stream has gone on"])
def test_snapshots_and_directories_of_before(make_app: MakeApp, stop_after: int) -> None:
    """Their windows were dropped as expired, and live again: the tail alone has not all of them."""
    one = traveller(make_app, [KV, TS, WIN, MEM])
    one.commits(range(2))
    older = one.snapshot()
    one.commits(range(2, 4))
    taken = one.snapshot()
    one.commits(range(4, 11))
    one.task.flush()  # drops segments
    newer = one.snapshot()
    one.commits(range(11, 13))
    one.task.flush()
    one.task.close()
    copy = shutil.copytree(one.task.path, one.app.root / "copy")
    one.task.open()

    one.task.go_back(one.request(taken.id))
    one.claim()
    then = one.commits(range(4, 4 + stop_after))
    later = one.snapshot()
    for source in (older.id, newer.id, taken.id, later.id, CHANGELOG, LOCAL):
        one.task.restore(one.task.plan(source))
        assert digests(one.task) == then, source
    one.task.close()
    shutil.rmtree(one.task.path)
    copy.rename(one.task.path)
    one.task.open()
    assert digests(one.task) == then, "a directory of before"


def test_forth_again(make_app: MakeApp) -> None:
    """A restore is undone by one to a snapshot of before it."""
    one = traveller(make_app, [KV, WIN, MEM])
    then = one.commits(range(3))
    taken = one.snapshot()
    now = one.commits(range(3, 10))
    latest = one.snapshot()
    one.task.go_back(one.request(taken.id))
    assert digests(one.task) == then
    assert one.plan(latest.id).records == 0
    marker = one.task.go_back(one.request(latest.id))
    assert digests(one.task) == now
    assert one.from_scratch() == now
    assert marker.published["positions"] == marker.positions.to_json()
    one.claim()
    one.commits([10])
    one.has_written(*range(11))


def test_back_twice_before_the_stream_has_come_up(make_app: MakeApp) -> None:
    one = traveller(make_app, [KV, WIN])
    first = one.commits(range(2))
    taken = one.snapshot()
    one.commits(range(2, 4))
    second = one.snapshot()
    now = one.commits(range(4, 9))
    one.task.go_back(one.request(second.id))
    one.claim()
    one.commits([4, 5])
    one.task.go_back(one.request(taken.id))
    assert digests(one.task) == first
    assert one.from_scratch() == first
    one.claim()
    assert one.commits(range(2, 9)) == now
    one.commits([9])
    one.has_written(*range(10))


def test_to_where_it_stands(make_app: MakeApp) -> None:
    one = traveller(make_app)
    now = one.commits(range(2))
    taken = one.snapshot()
    plan = one.plan(taken.id)
    assert (plan.is_nothing, plan.discards, plan.records) == (True, (), 0)
    one.task.go_back(one.request(taken.id))
    assert digests(one.task) == now
