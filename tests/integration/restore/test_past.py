"""Going back in time: one task on a real broker, in-process."""

from __future__ import annotations

import pytest

from state_lib.errors import Realign
from state_lib.protocol.marker import RUNNING
from tests.integration.conftest import MakeApp
from tests.support.apps import KV, TS, WIN, digests
from tests.support.past import MEM, positions, traveller
from tests.support.s3 import s3_server


@pytest.mark.parametrize("stores", [[KV], [KV, TS, WIN, MEM]], ids=["one", "four"])
def test_back_and_forth(make_app: MakeApp, stores: list) -> None:  # type: ignore[type-arg]
    one = traveller(make_app, stores)
    then = one.commits(range(4))
    taken, counted = one.snapshot(), one.task.marker
    now = one.commits(range(4, 12))
    assert now != then
    before = one.task.marker

    plan = one.plan(taken.id)
    assert (plan.records, plan.batches) == (80, 8)
    assert plan.bytes == taken.size_bytes < plan.needed_bytes < plan.free_bytes
    assert 0 < plan.seconds < 5
    assert (plan.epoch, plan.batch_number) == (counted.epoch, counted.batch_number)
    assert not plan.is_nothing
    assert digests(one.task) == now, "nothing has changed"

    past = one.request(taken.id)
    marker = one.task.go_back(past)
    assert digests(one.task) == then
    assert (marker.epoch, marker.batch_number, marker.state) == (past.epoch, 1, RUNNING)
    assert (marker.positions, marker.stream_time_ms) == (counted.positions, counted.stream_time_ms)
    assert (marker.maxima, marker.dropped) == (counted.maxima, counted.dropped)
    assert marker.recorded == counted.recorded
    assert marker.published["positions"] == before.positions.to_json()
    assert marker.rewound == past.epoch
    assert [p.name for p in one.task.path.parent.iterdir()] == ["0"], "nothing lies about"

    one.task.close()
    one.task.open()
    assert digests(one.task) == then, "local"
    assert one.from_scratch() == then, "a full replay of the changelogs"
    assert positions(one.task.marker) == [40]

    with pytest.raises(Realign, match="restore to the past"):  # its driver claims anew
        one.commit(4, at=before)
    assert one.claim().positions == counted.positions
    assert one.commits(range(4, 12)) == now, "as if the stream had run once"
    one.has_written(*range(12))
    assert one.task.marker.dropped == before.dropped
    assert one.task.marker.published == before.published
    later = one.commits([12])
    one.has_written(*range(13))
    assert one.from_scratch() == later


def test_back_to_a_snapshot_on_s3(make_app: MakeApp) -> None:
    with s3_server() as server:
        one = traveller(make_app, [KV, WIN, MEM], server.bucket("way-back"))
        then = one.commits(range(3))
        taken = one.snapshot()
        now = one.commits(range(3, 6))
        assert one.plan(taken.id).bytes == taken.size_bytes
        one.task.go_back(one.request(taken.id))
        assert digests(one.task) == then
    assert one.from_scratch() == then
    one.claim()
    assert one.commits(range(3, 6)) == now
    one.has_written(*range(6))


def test_outputs_are_written_again_if_asked(make_app: MakeApp) -> None:
    one = traveller(make_app)
    one.commits(range(2))
    taken = one.snapshot()
    now = one.commits(range(2, 5))
    one.task.go_back(one.request(taken.id, republish=True))
    one.claim()
    assert one.commits(range(2, 6)) != now
    one.has_written(0, 1, 2, 3, 4, 2, 3, 4, 5)
    assert "again" not in one.task.marker.published


def test_a_batch_across_what_was_published_is_refused(make_app: MakeApp) -> None:
    """Half of its outputs would be missing, or written twice: so must no driver of before."""
    one = traveller(make_app)
    one.commits(range(2))
    taken = one.snapshot()
    one.commits(range(2, 4))
    one.task.go_back(one.request(taken.id))
    one.claim()
    with pytest.raises(Realign, match="recorded"):
        one.commit(2, wide=3)
    one.commits([2, 3, 4])
    one.has_written(0, 1, 2, 3, 4)
