"""Whose turn it is to be read, where, and what is remembered of it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from state_lib.apps.hosts import Held
from state_lib.checks.facts import DrillSeen
from state_lib.errors import InvalidName, NotFound
from state_lib.gathering.drills import drill_seen
from state_lib.gathering.history import note, recall
from state_lib.gathering.hosts import _host
from state_lib.gathering.samples import MOST, RECORDS, TURN_MS, places, turn
from state_lib.host.disk import DiskWatch
from state_lib.reports.folder import Reports
from state_lib.reports.record import Record
from state_lib.snapshots.manifest import new_id
from tests.support.facts import KV_LOG, NOW, sample


def test_every_partition_has_its_turn() -> None:
    assert turn(MOST, NOW) == list(range(MOST))
    seen = {p for i in range(1000 // MOST + 1) for p in turn(1000, NOW + i * TURN_MS)}
    assert seen == set(range(1000))
    assert len(turn(1000, NOW)) == MOST


def test_places_reach_from_the_start_to_the_end() -> None:
    assert places(7, 7) == []
    assert places(7, 7 + RECORDS) == [(7, 7 + RECORDS)]
    found = places(100, 1_000_100)
    assert (found[0][0], found[-1][1]) == (100, 1_000_100)
    assert sum(end - start for start, end in found) == RECORDS
    assert all(a[1] <= b[0] for a, b in pairwise(found))


def test_what_was_seen_is_remembered(tmp_path: Path) -> None:
    assert recall(tmp_path, "app") == {}
    note(tmp_path, "app", {(KV_LOG, 1): (1, 2, 3)}, {KV_LOG: [sample(first_repeat=7)]}, NOW)
    assert recall(tmp_path, "app") == {(KV_LOG, 0): (NOW, 1000, 7), (KV_LOG, 1): (1, 2, 3)}
    (tmp_path / "checks" / "app.json").write_text("{")
    assert recall(tmp_path, "app") == {}
    with pytest.raises(InvalidName):
        recall(tmp_path, "../app")


def test_a_place_that_cannot_be_written_ends_no_check(tmp_path: Path) -> None:
    (tmp_path / "checks").write_text("a file")
    note(tmp_path, "app", {}, {KV_LOG: [sample()]}, NOW)
    assert recall(tmp_path, "app") == {}


def test_a_disk_is_looked_at_now_and_then(tmp_path: Path) -> None:
    watch = DiskWatch(tmp_path / "not yet made", every_s=0.0)
    for _ in range(200):
        watch.pass_by()
    found = watch.to_json()
    assert 0 < found["free"] < found["total"]
    assert 60 < len(found["used"]) <= 96
    assert found["used"] == sorted(found["used"], key=lambda look: look[0])
    once = DiskWatch(tmp_path)
    once.pass_by()
    once.pass_by()
    assert len(once.to_json()["used"]) == 1


def test_a_host_of_an_older_version_tells_less() -> None:
    said = {"partition": 1, "waits": "it opens", "marker": None}
    (task,) = _host(Held("host-1", {"app": {"tasks": [said]}}), "app").tasks
    assert (task.partition, task.state, task.why) == (1, "opening", "it opens")
    assert (task.bytes, task.durable, task.stores) == (0, {}, {})
    assert _host(Held("host-1", {}), "app").disk_total == 0


def test_the_newest_drill_that_came_to_its_end_counts(tmp_path: Path) -> None:
    reports = Reports(tmp_path.as_uri(), "app", "drill")
    assert drill_seen(reports) is None
    old, done, failed, runs, foreign = (new_id(NOW + i) for i in range(5))
    for name, result in (
        (old, {"alarms": [], "failed": [], "absent": []}),
        (done, {"alarms": [1], "failed": [2], "absent": [0]}),
    ):
        Record(name, "here", 1, NOW, state="done", result=result).write(reports)
    away = NotFound("there is no application 'app'").to_wire()
    Record(failed, "here", 1, NOW, state="failed", error=away).write(reports)
    Record(runs, "here", 1, NOW).write(reports)
    reports.write(f"{foreign}.json", b"{")
    assert drill_seen(reports) == DrillSeen(NOW, different=(1,), failed=(0, 2))
