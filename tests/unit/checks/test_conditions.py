"""Conditions: each from facts that a test has spoilt, and none while all is well."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from state_lib.checks.condition import CONDITIONS, Condition, together
from state_lib.checks.conditions import (
    cannot_look,
    changelog_unsafe,
    compaction_stuck,
    disk_filling,
    driver_stalled,
    host_down,
    snapshot_stale,
    store_lost,
    task_without_owner,
)
from state_lib.checks.facts import Facts, HostSeen, SnapshotsSeen, TaskSeen
from state_lib.drivers.sight import DriverFacts, Ended, Running, Sight, Stop
from state_lib.specs import DAY_MS
from tests.support.facts import KV_LOG, NOW, WIN_LOG, altered, sample, well, with_topic

ROOT = Path(__file__).parents[3]
DRIVER = DriverFacts("d1", "machine", 4711, "", 7, NOW)
COMMITS = Sight(
    at=NOW, drivers=("d1",), epoch=7, driver="d1", facts=DRIVER, batch_number=9, done=5, total=9
)


def hosts(number: int, **more: object) -> tuple[HostSeen, ...]:
    """Those of an application that is well, but for one."""
    found = list(well().hosts)
    found[number] = replace(found[number], **more)  # type: ignore[arg-type]
    return tuple(found)


QUARANTINED = hosts(0, tasks=(TaskSeen(0, "quarantined", "its SST is corrupt"),))
AWAY = hosts(1, away="no answer within 5 s", tasks=())


def the(found: Iterable[Condition]) -> Condition:
    (one,) = found
    assert one.name in CONDITIONS
    assert one.seen
    assert one.needed
    assert one.step
    assert (ROOT / one.document).exists()
    assert Condition.from_json(one.to_json()) == one
    return one


JUDGES: dict[str, Callable[[Facts], Iterable[Condition]]] = {
    "host-down": lambda f: host_down("app", f.hosts),
    "task-without-owner": task_without_owner,
    "driver-stalled": lambda f: driver_stalled(f.app, COMMITS, None),
    "changelog-unsafe": changelog_unsafe,
    "compaction-stuck": compaction_stuck,
    "store-lost": lambda f: store_lost("app", f.hosts),
    "snapshot-stale": snapshot_stale,
    "disk-filling": lambda f: disk_filling("app", f.hosts),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_none_holds_while_all_is_well(name: str) -> None:
    assert list(JUDGES[name](well())) == []


def test_a_host_that_does_not_answer_is_down_and_its_tasks_are_named() -> None:
    one = the(host_down("app", AWAY, {"host-1": ["app/0"], "host-2": ["app/1"]}))
    assert (one.subject, one.hosts, one.tasks) == ("host-2", ("host-2",), ("app/1",))
    assert one.seen == "no answer within 5 s"
    assert the(host_down("app", AWAY)).tasks == ()


def test_a_task_of_a_host_that_is_away_is_without_owner() -> None:
    one = the(task_without_owner(well(hosts=AWAY)))
    assert (one.subject, one.tasks, one.hosts) == ("app/1", ("app/1",), ("host-1",))
    assert one.seen == "no host has it; the last one was host-1"
    assert one.step == "start host-2: with it they are back"
    nobody = [replace(m, owner="") for m in well().markers]
    one = the(task_without_owner(well(hosts=hosts(0, tasks=()), markers=tuple(nobody))))
    assert "nobody has ever had it" in one.seen
    assert "start the job" in one.step


def test_a_lost_store_is_one_that_its_host_does_not_restore() -> None:
    one = the(store_lost("app", QUARANTINED))
    assert (one.subject, one.tasks, one.hosts) == ("app/0", ("app/0",), ("host-1",))
    assert one.seen == "host-1 has it in quarantine: its SST is corrupt"
    assert "holdfast restore plan app" in one.step
    assert "the DAG app_restore" in one.step
    for state in ("opening", "restoring"):
        healing = hosts(0, tasks=(TaskSeen(0, state, "it replays"),))
        assert list(store_lost("app", healing)) == []


def test_a_changelog_that_fails_checks_is_one_condition() -> None:
    wrong = altered(well(), KV_LOG, cleanup_policy="delete", min_insync_replicas="1")
    one = the(changelog_unsafe(wrong))
    assert (one.subject, one.page) == (KV_LOG, "cleanup-policy")
    assert "cleanup-policy: delete" in one.seen
    assert "'holdfast repair config app', or the DAG app_repair" in one.step
    short = altered(well(), WIN_LOG, retention_ms="1000")
    assert "they are being deleted" in the(changelog_unsafe(short)).seen
    assert the(changelog_unsafe(with_topic(well(), KV_LOG, None))).page == "topics"


def test_warnings_and_topics_of_others_are_no_unsafe_changelogs() -> None:
    warned = altered(well(), WIN_LOG, retention_ms=str(5 * 3_600_000))
    assert list(changelog_unsafe(warned)) == []
    source = with_topic(well(), "source", None)
    assert list(changelog_unsafe(source)) == []


def test_compaction_counts_where_logs_were_read() -> None:
    read = {"offsets": 20_000, "records": 20_000, "repeats": 19_000, "first_repeat": 5}
    dirty = sample(end=500_000_000, live=5, **read)
    samples = {**(well().samples or {}), KV_LOG: (dirty, sample(1))}
    assert the(changelog_unsafe(well(samples=samples))).page == "compaction"
    assert list(changelog_unsafe(well(samples=None))) == []
    one = the(compaction_stuck(well(samples=samples)))
    assert (one.subject, one.page) == (KV_LOG, "compaction")
    wrong = altered(well(samples=samples), KV_LOG, min_insync_replicas="1")
    assert the(compaction_stuck(wrong)).seen == one.seen, "of nothing else"
    assert list(compaction_stuck(well(samples=None))) == []


def of_snapshots(**more: object) -> Facts:
    found = well().snapshots
    assert found is not None
    return well(snapshots=replace(found, **more))  # type: ignore[arg-type]


NEWEST = (well().snapshots or SnapshotsSeen("")).newest


@pytest.mark.parametrize(
    ("facts", "tasks", "seen"),
    [
        (of_snapshots(newest={}), ("app/0", "app/1"), "none in file:///snapshots"),
        (of_snapshots(newest={0: NEWEST[0]}), ("app/1",), "none of tasks 1"),
        (of_snapshots(newest={**NEWEST, 1: replace(NEWEST[1], written_at=NOW - 2 * DAY_MS)}),
         ("app/1",), "the oldest is 2 d old"),
        (of_snapshots(newest={**NEWEST, 1: replace(NEWEST[1], why_not="too old")}),
         ("app/1",), "those of tasks 1 cannot be used; 1: too old"),
        (of_snapshots(away="it does not answer"), (), "it does not answer"),
    ],
)  # fmt: skip
def test_snapshots_that_are_no_protection(facts: Facts, tasks: tuple[str, ...], seen: str) -> None:
    one = the(snapshot_stale(facts))
    assert (one.subject, one.tasks) == ("app", tasks)
    assert seen in one.seen


def test_what_is_merely_not_whole_in_storage_is_not_stale() -> None:
    assert list(snapshot_stale(of_snapshots(broken={"s9": "a file is missing"}))) == []


def test_a_disk_that_fills() -> None:
    one = the(disk_filling("app", hosts(0, disk_free=10**11)))
    assert (one.subject, one.hosts, one.tasks) == ("host-1", ("host-1",), ("app/0",))
    assert "90% used" in one.seen
    gone = hosts(0, disk_free=0, away="no answer")
    assert list(disk_filling("app", gone)) == [], "nobody knows"


@pytest.mark.parametrize(
    ("sight", "late_s", "seen"),
    [
        (COMMITS, 90.0, "4 records to do and nothing committed for 90 s: it has not begun a batch"),
        (replace(COMMITS, batch=Running(10, 4, NOW - 80_000)), 90.0,
         "batch 10 of 4 records runs since 80 s"),
        (replace(COMMITS, hosts=("host host-1 at h does not answer",)), 90.0,
         "host host-1 at h does not answer"),
        (replace(COMMITS, drivers=()), None,
         "no driver runs: the driver on machine, process 4711, is gone without a word"),
        (replace(COMMITS, drivers=(), ended=(Ended("d1", "failed", "no memory"),)), None,
         "no driver runs: no memory"),
        (replace(COMMITS, drivers=("d2",)), 200.0, "nothing committed for 200 s"),
    ],
)  # fmt: skip
def test_a_driver_that_is_stalled(sight: Sight, late_s: float | None, seen: str) -> None:
    one = the(driver_stalled("app", sight, late_s))
    assert (one.subject, one.page) == ("app", "driver-stalled")
    assert seen in one.seen


@pytest.mark.parametrize(
    "sight",
    [
        Sight(at=NOW),
        replace(COMMITS, drivers=(), ended=(Ended("d1", "stopped", "the day is over"),)),
        replace(COMMITS, drivers=(), stop_asked=Stop(8, "the day is over")),
        replace(COMMITS, drivers=(), notice="a reset by somebody"),
        replace(COMMITS, drivers=("d2",)),
    ],
)
def test_a_stream_that_was_stopped_reset_or_never_ran_is_no_alarm(sight: Sight) -> None:
    assert list(driver_stalled("app", sight, None)) == []


def test_tasks_that_are_left_out_are_named() -> None:
    assert the(driver_stalled("app", replace(COMMITS, parked=(1,)), 90.0)).tasks == ("app/1",)


def test_that_nobody_can_look_is_one_for_each_of_the_others() -> None:
    one = cannot_look("app", "host-down", "every host refuses the token")
    assert one.name not in CONDITIONS, "it is not looked for"
    assert (ROOT / one.document).exists()
    assert Condition.from_json(one.to_json()) == one
    assert one.text.startswith("cannot-look of app, host-down: every host refuses the token")


def test_several_are_told_together() -> None:
    away = [HostSeen(f"host-{i}", "gone") for i in range(5)]
    found = list(host_down("app", away, {"host-0": ["app/0"], "host-4": ["app/4"]}))
    one = together(found)
    assert one.subject == "host-0, host-1, host-2, host-3, host-4"
    assert one.seen == "host-0: gone; host-1: gone; host-2: gone; and 2 more"
    assert one.tasks == ("app/0", "app/4")
    assert len(one.hosts) == 5
    assert together(found[:1]) == found[0]
    assert one.text.startswith("host-down of app, host-0, ")
    assert "Read: docs/runbook/hosts.md" in one.text


RULES = {
    "host-down": "HoldfastHostDown",
    "task-without-owner": "HoldfastTaskWithoutOwner",
    "driver-stalled": "HoldfastStreamQuiet",
    "store-lost": "HoldfastTaskNotOpen",
    "disk-filling": "HoldfastDiskFilling",
    "snapshot-stale": "HoldfastSnapshotStale",
}
ELSEWHERE = {"changelog-unsafe", "compaction-stuck"}
"""Of these hosts know nothing: only brokers do."""


def test_conditions_and_prometheus_rules_are_the_same_but_for_what_is_documented() -> None:
    groups = yaml.safe_load((ROOT / "docker/prometheus/rules.yaml").read_text())["groups"]
    rules = {rule["alert"] for group in groups for rule in group["rules"]}
    assert set(RULES) | ELSEWHERE == set(CONDITIONS)
    assert not set(RULES) & ELSEWHERE
    page = (ROOT / "docs/how-to/alarms.md").read_text()
    table = [line.split("|")[1:3] for line in page.splitlines() if line.startswith("| `")]
    told = {n.strip(" `"): rule.strip(" `") for n, rule in table if "Sensor" not in n}
    assert told == {**RULES, **dict.fromkeys(ELSEWHERE, "none")}
    assert set(RULES.values()) <= rules
    for more in rules - set(RULES.values()):
        assert f"`{more}`" in page, "a rule without a condition is explained"
