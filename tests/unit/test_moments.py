"""What ``--to`` means."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from state_lib.apps.moments import moment
from state_lib.errors import InvalidRequest, NotFound, SnapshotInvalid
from state_lib.protocol.marker import now_ms
from state_lib.snapshots.manifest import Manifest
from state_lib.snapshots.savepoints import write_savepoint
from state_lib.snapshots.write import write_snapshot
from state_lib.times import iso
from tests.support.snapshots import Source

HOUR = 3_600_000


class Stored:
    """Two tasks, each with a snapshot of three and of two hours ago; the later are a savepoint."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root, self.url, self.now = root, (root / "stored").as_uri(), now_ms()
        self.taken: dict[tuple[int, int], Manifest] = {}
        for partition in (0, 1):
            source = Source(root / f"{partition}")
            self.topology = source.topology
            for hours in (3, 2):
                at = self.now - hours * HOUR + partition
                patch.setattr("tests.support.snapshots.time.time_ns", lambda at=at: at * 1_000_000)
                source.write({b"k": b"%d" % hours})
                one = write_snapshot(source.request(self.url, partition)).manifest
                self.taken[partition, hours] = one
            patch.undo()
            source.stores.close()
        self.savepoint = "20260131T120000000Z-1a2b3c4d"
        write_savepoint(self.url, self.savepoint, [self.taken[p, 2] for p in (0, 1)])

    def to(self, to: str, tasks: list[int] | None = None) -> dict[int, str]:
        return moment(self.url, self.topology, to, tasks, self.now)

    def ids(self, hours: int) -> dict[int, str]:
        return {p: self.taken[p, hours].id for p in (0, 1)}

    def ago(self, hours: float) -> str:
        return str(iso(self.now - int(hours * HOUR)))


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stored:
    return Stored(tmp_path, monkeypatch)


def test_a_savepoint_a_snapshot_and_a_time(stored: Stored) -> None:
    assert stored.to(stored.savepoint) == stored.ids(2)
    assert stored.to(stored.savepoint, [1]) == {1: stored.taken[1, 2].id}
    assert stored.to(stored.taken[1, 3].id, [1]) == {1: stored.taken[1, 3].id}
    assert stored.to(stored.ago(0)) == stored.ids(2)
    assert stored.to(stored.ago(2.5)) == stored.ids(3)
    assert stored.to(str(stored.now - 3 * HOUR), [0]) == {0: stored.taken[0, 3].id}, "or at it"


def test_one_task_is_not_the_application(stored: Stored) -> None:
    one = stored.taken[1, 3].id
    with pytest.raises(InvalidRequest, match="--task 1") as refused:
        stored.to(one)
    assert "app/1 alone" in refused.value.message
    with pytest.raises(InvalidRequest, match="--task 1"):
        stored.to(one, [0])


def test_times_that_nothing_reaches(stored: Stored) -> None:
    with pytest.raises(InvalidRequest, match="in the future") as refused:
        stored.to(str(iso(stored.now + HOUR)))
    assert str(iso(stored.now)) in refused.value.message
    with pytest.raises(InvalidRequest, match="the oldest one") as refused:
        stored.to(stored.ago(4))
    assert stored.ago(3) in refused.value.message
    with pytest.raises(InvalidRequest, match="neither the id of a snapshot"):
        stored.to("yesterday")
    stored.topology = replace(stored.topology, app="other")
    with pytest.raises(InvalidRequest, match="no snapshot of other/0"):
        stored.to(stored.ago(0))


def test_another_applications_snapshot(stored: Stored) -> None:
    stored.topology = replace(stored.topology, app="other")
    one = stored.taken[0, 3].id
    for snapshot in (one, stored.savepoint):
        with pytest.raises(NotFound, match="of application 'other'"):
            stored.to(snapshot)
    source, target = (stored.root / "stored" / app for app in ("app", "other"))
    target.mkdir()
    (target / "0").symlink_to(source / "0")
    with pytest.raises(SnapshotInvalid, match="is that of app/0"):
        stored.to(one, [0])


def test_a_damaged_one_is_named(stored: Stored) -> None:
    one = stored.taken[0, 3]
    file = stored.root / "stored" / "app" / "0" / "manifests" / f"{one.id}.json"
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(SnapshotInvalid, match="no readable manifest"):
        stored.to(one.id, [0])
