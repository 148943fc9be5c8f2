"""Checks of topics' settings: each verdict from facts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from state_lib.checks import CHECKS, judge
from state_lib.checks.told import ASSUMED, told
from state_lib.protocol.marker import NO_TIME, RESTORING
from state_lib.specs import DAY_MS, OutputSpec, Topology
from tests.support.facts import (
    HOUR,
    KV_LOG,
    NOW,
    WIN_LOG,
    all_of,
    altered,
    changed,
    the,
    topic,
    verdicts,
    well,
    with_topic,
)

WEEK = str(7 * DAY_MS)
PROPER = str(28 * HOUR)


def test_all_is_well() -> None:
    assert [v for v in all_of(well()) if v.level != "ok"] == []
    report = judge(well())
    assert (report.level, report.exit_code, report.alarms, report.changes) == ("ok", 0, (), ())
    assert {v.check for v in report.verdicts} == set(CHECKS), "each check says that it looked"


@pytest.mark.parametrize(
    ("name", "step"),
    [
        (KV_LOG, "repair changelog app"),
        ("app-commits", "repair changelog app"),
        ("app-topology", "repair topology app"),
        ("app-progress", "next start"),
        ("out", "next start"),
        ("source", "job"),
    ],
)
def test_a_missing_topic_fails(name: str, step: str) -> None:
    one = the("topics", with_topic(well(), name, None), name)
    assert (one.level, one.seen) == ("fail", "it is missing")
    assert step in one.step


def test_another_partition_count_fails() -> None:
    facts = well()
    seen = topic(3, dict(facts.topics[KV_LOG].config))
    one = the("topics", with_topic(facts, KV_LOG, seen), KV_LOG)
    assert (one.level, one.seen, one.needed) == ("fail", "3 partitions", "2 partitions")
    assert not one.changes


@pytest.mark.parametrize(
    ("name", "step", "not_"),
    [
        (KV_LOG, "app reset app", "create it anew"),
        ("out", "create it anew with 2 partitions", "app reset"),
        ("app-progress", "delete the topic", "app reset"),
        ("app-dead-letters", "delete the topic", "app reset"),
    ],
)
def test_no_more_is_thrown_away_than_the_topic(name: str, step: str, not_: str) -> None:
    facts = well()
    seen = topic(3, dict(facts.topics[name].config))
    one = the("topics", with_topic(facts, name, seen), name)
    assert one.level == "fail"
    assert step in one.step
    assert not_ not in one.step


@pytest.mark.parametrize("name", [KV_LOG, WIN_LOG, "app-dead-letters", "out", "source"])
@pytest.mark.parametrize("hidden", ["", "None", None])
def test_settings_that_are_not_told_are_a_warning(name: str, hidden: str | None) -> None:
    facts = well()
    seen = facts.topics[name]
    planned = dict(next((p.config for p in facts.plans() if p.name == name), {}))
    said = {} if hidden is None else dict.fromkeys(seen.config, hidden)
    config, untold = told({**said, "cleanup.policy": seen.config["cleanup.policy"]}, planned)
    assert set(untold) == set(ASSUMED) - {"cleanup.policy"}
    config["min.insync.replicas"] = "2"
    facts = with_topic(facts, name, replace(seen, config=config, untold=untold))
    report = judge(facts)
    assert [(v.check, v.subject, v.level) for v in report.alarms] == [("topics", name, "warn")]
    assert "retention.ms" in report.alarms[0].seen
    assert report.changes == ()


def test_what_is_told_stays() -> None:
    config = {**ASSUMED, "cleanup.policy": "", "retention.ms": "7", "more": "x"}
    assert told(config, {"retention.ms": "-1"}) == (config, ())


@pytest.mark.parametrize(
    ("name", "policy", "wanted"),
    [
        (KV_LOG, "delete", "compact"),
        (KV_LOG, "compact,delete", "compact"),
        (WIN_LOG, "delete", "compact,delete"),
        ("app-commits", "compact,delete", "compact"),
        ("app-topology", "delete", "compact"),
        ("app-dead-letters", "compact", "delete"),
        ("app-dead-letters", "compact,delete", "delete"),
        ("app-progress", "compact", "delete"),
    ],
)
def test_a_policy_that_loses_state_fails(name: str, policy: str, wanted: str) -> None:
    one = the("cleanup-policy", altered(well(), name, cleanup_policy=policy), name)
    assert one.level == "fail"
    assert policy in one.seen
    assert changed(one) == {"cleanup.policy": wanted}
    assert "'holdfast repair config app', or the DAG app_repair" in one.step


def test_what_compaction_does_to_a_log_of_letters_is_said() -> None:
    facts = altered(well(), "app-dead-letters", cleanup_policy="compact")
    assert "equal keys" in the("cleanup-policy", facts, "app-dead-letters").seen


def test_a_policy_that_keeps_more_is_fine() -> None:
    facts = altered(well(), WIN_LOG, cleanup_policy="compact")
    assert the("cleanup-policy", facts, WIN_LOG).level == "ok"


@pytest.mark.parametrize(
    ("name", "config", "level", "wanted"),
    [
        (WIN_LOG, {"retention_ms": str(3 * HOUR)}, "fail", {"retention.ms": "-1"}),
        (WIN_LOG, {"retention_ms": str(27 * HOUR)}, "warn", {"retention.ms": PROPER}),
        (WIN_LOG, {"retention_ms": "-1"}, "warn", {"retention.ms": PROPER}),
        (WIN_LOG, {"retention_bytes": "1000"}, "fail", {"retention.bytes": "-1"}),
        ("app-progress", {"retention_ms": WEEK}, "warn", {"retention.ms": "-1"}),
        ("app-dead-letters", {"retention_ms": WEEK}, "warn", {"retention.ms": "-1"}),
        ("out", {"retention_ms": WEEK}, "fail", {}),
        ("app-progress", {"retention_bytes": "7"}, "fail", {"retention.bytes": "-1"}),
    ],
)
def test_retention_that_is_too_short_or_too_long(
    name: str, config: dict[str, str], level: str, wanted: dict[str, str]
) -> None:
    one = the("retention", altered(well(), name, **config), name)
    assert (one.level, changed(one)) == (level, wanted)


def at_clock(clock: int) -> object:
    return tuple(replace(m, stream_time_ms=clock) for m in well().markers)


@pytest.mark.parametrize(
    ("behind", "kept", "level", "wanted"),
    [
        (0, "28", "ok", {}),
        (13, "28", "warn", {"retention.ms": "-1"}),  # live windows reach back 17 of 28 h
        (25, "28", "fail", {"retention.ms": "-1"}),
        (25, "-1", "ok", {}),
        (7, "-1", "ok", {}),  # not to and fro
        (5, "-1", "warn", {"retention.ms": PROPER}),
    ],
)
def test_retention_counts_from_event_time(
    behind: int, kept: str, level: str, wanted: dict[str, str]
) -> None:
    ms = "-1" if kept == "-1" else str(int(kept) * HOUR)
    facts = altered(well(markers=at_clock(NOW - behind * HOUR)), WIN_LOG, retention_ms=ms)
    one = the("retention", facts, WIN_LOG)
    assert (one.level, changed(one)) == (level, wanted)


def test_retention_of_an_application_without_events_is_not_judged_by_them() -> None:
    facts = altered(well(markers=at_clock(NO_TIME)), WIN_LOG, retention_ms="-1")
    assert the("retention", facts, WIN_LOG).level == "ok"


def test_retention_is_not_lowered_while_a_task_goes_to_the_past() -> None:
    first, second = well().markers
    markers = (first, replace(second, state=RESTORING))
    facts = altered(well(markers=markers), WIN_LOG, retention_ms="-1")
    one = the("retention", facts, WIN_LOG)
    assert (one.level, one.changes) == ("ok", ())


def test_progress_is_kept_as_long_as_the_source() -> None:
    facts = altered(altered(well(), "source", retention_ms=WEEK), "app-progress", retention_ms=WEEK)
    assert the("retention", facts, "app-progress").level == "ok"
    facts = altered(facts, "app-progress", retention_ms=str(6 * DAY_MS))
    assert changed(the("retention", facts, "app-progress")) == {"retention.ms": WEEK}


def test_retention_against_the_slowest_reader() -> None:
    facts = well()
    assert facts.snapshots is not None
    old = replace(facts.snapshots.newest[1], written_at=NOW - 29 * HOUR)
    snapshots = replace(facts.snapshots, newest={**facts.snapshots.newest, 1: old})
    one = the("retention", replace(facts, snapshots=snapshots), WIN_LOG)
    assert one.level == "warn"
    assert "snapshot of task 1 is 1.2 d old" in one.seen
    current = replace(snapshots, newest={1: replace(old, current=True)})
    assert the("retention", replace(facts, snapshots=current), WIN_LOG).level == "ok"

    away = [replace(h, away="does not answer") for h in facts.hosts[:1]]
    markers = tuple(replace(m, written_at=NOW - 29 * HOUR) for m in facts.markers)
    one = the("retention", replace(facts, hosts=(*away,), markers=markers), WIN_LOG)
    assert "directory of task 0 on host-1" in one.seen


@pytest.mark.parametrize(
    ("age_h", "kept_d", "level"),
    [(1, 7, "ok"), (1, 1, "warn"), (90, 7, "warn"), (167.5, 7, "fail"), (30, 1, "fail")],
)
def test_deletions_are_remembered_longer_than_snapshots_are_old(
    age_h: float, kept_d: int, level: str
) -> None:
    facts = well()
    assert facts.snapshots is not None
    newest = {0: replace(facts.snapshots.newest[0], written_at=NOW - int(age_h * HOUR))}
    facts = replace(facts, snapshots=replace(facts.snapshots, newest=newest))
    for name in (n for n in facts.topics if n.endswith("-changelog")):
        facts = altered(facts, name, delete_retention_ms=str(kept_d * DAY_MS))
    found = [v for v in CHECKS["tombstones"](facts) if v.subject == KV_LOG]
    assert [v.level for v in found] == [level]
    assert changed(found[0]) == ({} if kept_d == 7 else {"delete.retention.ms": WEEK})


def test_deletions_are_remembered_longer_than_directories_are_old() -> None:
    facts = well()
    away = replace(facts.hosts[0], away="does not answer")
    markers = tuple(replace(m, written_at=NOW - 30 * HOUR) for m in facts.markers)
    facts = replace(facts, hosts=(away, *facts.hosts[1:]), markers=markers)
    facts = altered(facts, KV_LOG, delete_retention_ms=str(DAY_MS))
    one = the("tombstones", facts, KV_LOG)
    assert (one.level, changed(one)) == ("fail", {"delete.retention.ms": WEEK})
    assert "directory of task 0 on host-1 is 1.2 d old: deleted keys would come back" in one.seen
    back = replace(facts, hosts=(replace(away, away=None), *facts.hosts[1:]))
    one = the("tombstones", back, KV_LOG)
    assert (one.level, "directory" in one.seen) == ("warn", False), "who answers is not behind"


@pytest.mark.parametrize("kept", [1000, HOUR])
def test_deletions_that_are_forgotten_at_once(kept: int) -> None:
    """Nobody is behind; but whoever will be may not go on from where it is."""
    one = the("tombstones", altered(well(), KV_LOG, delete_retention_ms=str(kept)), KV_LOG)
    assert (one.level, changed(one)) == ("fail", {"delete.retention.ms": WEEK})
    assert one.seen.endswith("(its margin is 1 h), whole changelogs are read")
    assert "holdfast repair config app" in one.step


def test_timestamps() -> None:
    facts = altered(well(), KV_LOG, message_timestamp_type="LogAppendTime")
    one = the("timestamps", facts, KV_LOG)
    assert (one.level, changed(one)) == ("fail", {"message.timestamp.type": "CreateTime"})
    facts = altered(well(), "app-progress", message_timestamp_after_max_ms="3600000")
    one = the("timestamps", facts, "app-progress")
    assert one.level == "warn"
    assert list(changed(one)) == ["message.timestamp.after.max.ms"]


def test_an_output_whose_rows_are_of_the_future_may_have_no_bound() -> None:
    """A start refuses it, but somebody may set one later: the first such row ends the commits."""
    bounded = altered(well(), "out", message_timestamp_after_max_ms="3600000")
    assert "out" not in verdicts("timestamps", bounded), "rows have the times of their events"
    dated = replace(bounded.topology, outputs=(OutputSpec("out", "kv", dated=True),))
    one = the("timestamps", replace(bounded, topology=dated), "out")
    assert (one.level, one.changes) == ("fail", ())
    assert "message.timestamp.after.max.ms=3600000" in one.seen
    assert "does not alter" in one.step
    assert the("timestamps", replace(well(), topology=dated), "out").level == "ok"


def test_who_checks_learns_from_kafka_which_outputs_are_dated() -> None:
    topology = replace(well().topology, outputs=(OutputSpec("out", "kv", dated=True),))
    assert Topology.from_json(json.loads(json.dumps(topology.to_json()))) == topology


@pytest.mark.parametrize(
    ("changes", "config", "level", "seen", "wanted"),
    [
        ({"leaderless": (1,)}, {}, "fail", "partitions 1 have no leader", {}),
        ({"in_sync": (3, 1)}, {}, "fail", "partitions 1 have fewer than 2", {}),
        ({"in_sync": (2, 3)}, {}, "warn", "partitions 0 have replicas that are not", {}),
        ({}, {"min_insync_replicas": "4"}, "fail", "nothing can be", {"min.insync.replicas": "2"}),
        ({}, {"min_insync_replicas": "1"}, "warn", "on 1 broker", {"min.insync.replicas": "2"}),
        ({"replicas": (2, 2), "in_sync": (2, 2)}, {}, "warn", "2 replicas", {}),
        ({}, {"unclean_leader_election_enable": "true"}, "fail", "may become leader",
         {"unclean.leader.election.enable": "false"}),
    ],
)  # fmt: skip
def test_replication(
    changes: dict[str, object],
    config: dict[str, str],
    level: str,
    seen: str,
    wanted: dict[str, str],
) -> None:
    facts = altered(well(), KV_LOG, **config)
    broken = replace(facts.topics[KV_LOG], **changes)  # type: ignore[arg-type]
    one = the("replication", with_topic(facts, KV_LOG, broken), KV_LOG)
    assert one.level == level
    assert seen in one.seen
    assert changed(one) == wanted


def test_an_output_is_never_altered() -> None:
    one = the("replication", altered(well(), "out", min_insync_replicas="1"), "out")
    assert (one.level, one.changes) == ("warn", ())
    assert "does not alter" in one.step


@pytest.mark.parametrize(
    ("config", "level"),
    [
        ({"min_cleanable_dirty_ratio": "1.0"}, "fail"),
        ({"min_cleanable_dirty_ratio": "0.95"}, "warn"),
        ({"min_compaction_lag_ms": str(31 * DAY_MS)}, "fail"),
        ({"min_compaction_lag_ms": str(2 * DAY_MS)}, "warn"),
        ({"segment_ms": str(31 * DAY_MS)}, "warn"),
        ({"segment_ms": str(400 * DAY_MS), "segment_bytes": str((1 << 31) - 1)}, "fail"),
        ({"segment_bytes": str((1 << 31) - 1)}, "warn"),
    ],
)
def test_segments_that_are_never_cleaned(config: dict[str, str], level: str) -> None:
    one = the("segments", altered(well(), KV_LOG, **config), KV_LOG)
    assert one.level == level
    assert {k.replace(".", "_") for k in changed(one)} == set(config)
