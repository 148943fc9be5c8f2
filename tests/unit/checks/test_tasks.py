"""Checks of logs, hosts, disks and snapshots: each verdict from facts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from state_lib.checks.disk import filling
from state_lib.checks.facts import (
    DrillSeen,
    Facts,
    HostSeen,
    SnapshotsSeen,
    StoreSeen,
    TaskSeen,
)
from state_lib.protocol.marker import IN_DOUBT
from state_lib.specs import DAY_MS
from tests.support.facts import HOUR, KV_LOG, NOW, WIN_LOG, the, verdicts, well, with_topic


def of_marker(**more: object) -> Facts:
    """The second task's marker is another one."""
    first, second = well().markers
    return well(markers=(first, replace(second, **more)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (of_marker(ends={KV_LOG: 2000}), "it ends at offset 1000, and 2000 was committed"),
        (of_marker(logs={KV_LOG: "another"}), "deleted and created again"),
        (of_marker(logs={KV_LOG: IN_DOUBT}), "no repair of it has ended"),
    ],
)
def test_a_log_that_lost_what_was_committed_fails(facts: Facts, why: str) -> None:
    one = the("changelog-lost", facts, KV_LOG)
    assert one.level == "fail"
    assert "partitions 1 are not whole" in one.seen
    assert why in one.seen
    assert "'holdfast repair changelog app', or the DAG app_repair" in one.step


def test_a_log_that_was_cut_fails_and_one_of_windows_does_not() -> None:
    facts = well()
    for name in (KV_LOG, WIN_LOG):
        facts = with_topic(facts, name, replace(facts.topics[name], starts=(0, 7)))
    one = the("changelog-lost", facts, KV_LOG)
    assert one.level == "fail"
    assert "its records before offset 7 were deleted" in one.seen


def test_lost_markers_fail() -> None:
    first, second = well().markers
    facts = well(markers=(first, replace(second, epoch=-1, batch_number=0)))
    assert verdicts("changelog-lost", facts)["app-commits"].level == "fail"


def test_a_directory_behind_the_start_of_its_log_fails() -> None:
    facts = well()
    facts = with_topic(facts, WIN_LOG, replace(facts.topics[WIN_LOG], starts=(0, 801)))
    one = the("checkpoint", facts, "host-2")
    assert one.level == "fail"
    assert f"1 ({WIN_LOG}: 800, and the log starts at 801)" in one.seen


def test_a_directory_with_nothing_left_to_replay_is_within() -> None:
    """All segments of old windows went, and the last transaction's control record with them."""
    facts = well()
    starts = replace(facts.topics[WIN_LOG], starts=(901, 0), ends=(901, 1000))
    drained = replace(facts.hosts[0].tasks[0], durable={WIN_LOG: 900})
    facts = with_topic(host(0, tasks=(drained,)), WIN_LOG, starts)
    assert the("checkpoint", facts, "host-1").level == "ok"
    behind = replace(drained, durable={WIN_LOG: 899})
    facts = replace(facts, hosts=host(0, tasks=(behind,)).hosts)
    assert the("checkpoint", facts, "host-1").level == "fail"


def host(number: int, **more: object) -> Facts:
    """One of both hosts is another one."""
    hosts = list(well().hosts)
    hosts[number] = replace(hosts[number], **more)  # type: ignore[arg-type]
    return well(hosts=tuple(hosts))


def test_a_host_that_does_not_answer_fails_and_so_do_its_tasks() -> None:
    facts = host(1, away="no answer within 5 s", tasks=())
    assert the("hosts", facts, "host-2").level == "fail"
    assert "no answer within 5 s" in the("hosts", facts, "host-2").seen
    one = the("tasks", facts, "app/1")
    assert one.level == "fail"
    assert "start host-2" in one.step
    assert [v.level for v in verdicts("disk", facts).values()] == ["ok"], "of the other one"


def test_a_task_that_nobody_has_though_all_hosts_answer_fails() -> None:
    one = the("tasks", host(0, tasks=()), "app/0")
    assert one.level == "fail"
    assert "the last one was host-1" in one.seen
    assert "start the job" in one.step


@pytest.mark.parametrize(
    ("state", "level", "step"),
    [
        ("quarantined", "fail", "holdfast restore run app"),
        ("opening", "warn", "holdfast logs"),
        ("restoring", "warn", "holdfast stores app"),
    ],
)
def test_a_task_that_is_not_open(state: str, level: str, step: str) -> None:
    one = the("tasks", host(0, tasks=(TaskSeen(0, state, "its SST is corrupt"),)), "app/0")
    assert one.level == level
    assert "its SST is corrupt" in one.seen
    assert step in one.step


@pytest.mark.parametrize(("used", "level"), [(790, "ok"), (800, "warn"), (950, "fail")])
def test_a_memory_store_near_its_bound(used: int, level: str) -> None:
    stores = {"mem": StoreSeen(10, used, 1000)}
    one = the("memory-bound", host(1, tasks=(TaskSeen(1, stores=stores),)), "mem")
    assert one.level == level
    assert f"{used / 1000:.0%} of it in task 1 on host-2" in one.seen


def test_a_memory_store_that_is_open_nowhere_is_another_checks_matter() -> None:
    facts = well(hosts=(HostSeen("host-1"),))
    assert the("memory-bound", facts, "mem").level == "ok"


def filled(slope_gb_a_day: float, wobble_gb: float = 0.0) -> tuple[tuple[int, int], ...]:
    """A day of looks at a disk."""
    return tuple(
        (NOW - (24 - h) * HOUR, int(1e9 * (400 + slope_gb_a_day * h / 24 + wobble_gb * (-1) ** h)))
        for h in range(25)
    )


LOADED = tuple((NOW - (60 - m) * 60_000, int(1e9 * (400 + m))) for m in range(60))
"""An hour in which a backlog is worked off: 60 GB."""


@pytest.mark.parametrize(
    ("more", "level", "seen"),
    [
        ({"disk_free": 10**11}, "warn", "90% used"),
        ({"disk_free": 4 * 10**10}, "fail", "96% used"),
        ({"disk_used": filled(700)}, "fail", "full in 20.6 h (20.6 h to 20.6 h)"),
        ({"disk_used": filled(150)}, "warn", "full in 4 d"),
        ({"disk_used": filled(20)}, "ok", "full in 30 d"),
        ({"disk_used": filled(20, wobble_gb=200)}, "ok", "not filling"),
        ({"disk_used": filled(700)[:5]}, "ok", "not filling"),
        ({"disk_used": LOADED}, "ok", "not filling"),
        ({"disk_used": LOADED, "disk_free": 2 * 10**11}, "fail", "full in 3.3 h"),
        ({"tasks": (TaskSeen(0, bytes=3 * 10**11),)}, "warn", "a restore of task 0 takes 660.0 GB"),
        ({"tasks": (TaskSeen(0, bytes=2 * 10**11),)}, "ok", "600.0 GB free"),
    ],
)
def test_a_disk_that_fills(more: dict[str, object], level: str, seen: str) -> None:
    one = the("disk", host(0, **more), "host-1")
    assert one.level == level
    assert seen in one.seen


def test_days_until_full_come_with_their_uncertainty() -> None:
    found = filling(filled(100, wobble_gb=5), 6 * 10**11)
    assert found.earliest < found.days < found.latest
    assert found.days == pytest.approx(6, rel=0.3)
    assert filling((), 1).days > 10**9


def of_snapshots(**more: object) -> Facts:
    facts = well()
    assert facts.snapshots is not None
    return replace(facts, snapshots=replace(facts.snapshots, **more))  # type: ignore[arg-type]


NEWEST = (well().snapshots or SnapshotsSeen("")).newest


@pytest.mark.parametrize(
    ("facts", "level", "seen"),
    [
        (of_snapshots(newest={}), "warn", "none in file:///snapshots"),
        (of_snapshots(newest={0: NEWEST[0]}), "warn", "none of tasks 1"),
        (of_snapshots(newest={**NEWEST, 1: replace(NEWEST[1], written_at=NOW - 2 * DAY_MS)}),
         "warn", "the oldest is 2 d old"),
        (of_snapshots(newest={**NEWEST, 1: replace(NEWEST[1], written_at=0, current=True)}),
         "ok", "one of each task"),
        (of_snapshots(newest={0: replace(NEWEST[0], written_at=NOW - 2 * DAY_MS),
                              1: replace(NEWEST[1], written_at=0, current=True)}),
         "warn", "the oldest is 2 d old"),
        (of_snapshots(newest={**NEWEST, 1: replace(NEWEST[1], why_not="too old")}),
         "fail", "those of tasks 1 cannot be used; 1: too old"),
    ],
)  # fmt: skip
def test_the_newest_snapshots(facts: Facts, level: str, seen: str) -> None:
    one = the("snapshots", facts, "app")
    assert one.level == level
    assert seen in one.seen


def test_storage_that_is_away_and_snapshots_that_are_not_whole() -> None:
    url = "file:///snapshots"
    assert the("snapshots", of_snapshots(away="refused"), url).level == "fail"
    one = the("snapshots", of_snapshots(broken={"s9": "a file is missing"}), url)
    assert one.level == "warn"
    assert "s9: a file is missing" in one.seen
    assert verdicts("snapshots", well(snapshots=None)) == {}


@pytest.mark.parametrize(
    ("drill", "level", "seen"),
    [
        (DrillSeen(NOW - HOUR), "ok", "1 h ago each task was equal"),
        (DrillSeen(NOW - HOUR, different=(1,)), "warn", "tasks 1 were not what"),
        (DrillSeen(NOW - HOUR, failed=(0, 1)), "warn", "tasks 0, 1 could not be restored"),
        (DrillSeen(NOW - 8 * DAY_MS), "warn", "the last one was 8 d ago"),
    ],
)
def test_the_last_drill(drill: DrillSeen, level: str, seen: str) -> None:
    one = the("snapshots", of_snapshots(drill=drill), "restore drill")
    assert one.level == level
    assert seen in one.seen


def test_where_no_drill_is_on_record_nothing_is_said() -> None:
    assert set(verdicts("snapshots", well())) == {"app"}
