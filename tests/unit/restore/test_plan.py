"""The plan is a pure function: facts in, the cheapest valid source out, with reasons."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from state_lib.changelog.log import LogRange
from state_lib.changelog.sample import Sample
from state_lib.changelog.topics import DELETE_RETENTION_MS
from state_lib.errors import InvalidRequest
from state_lib.protocol.marker import Marker
from state_lib.restore.facts import Facts, LocalFacts
from state_lib.restore.plan import CHANGELOG, LOCAL, RestorePlan, make_plan
from state_lib.restore.validity import AGE_MARGIN_MS
from state_lib.snapshots.manifest import FileEntry, Manifest
from state_lib.specs import StoreSpec, Topology
from state_lib.stores.task_stores import Checkpoint, layout_of

HOUR = 3_600_000
NOW = 1_800_000_000_000
KV, MEM = StoreSpec("kv"), StoreSpec("mem", backend="memory")
APP = Topology("app", 4, (KV, MEM), (), ("source",))
KV_LOG, MEM_LOG = "app-kv-changelog", "app-mem-changelog"
NEWEST = Marker(epoch=3, batch_number=9, written_at=NOW)


def checkpoint(n: int = 8, offset: int = 900, age_ms: int = HOUR, **more: str) -> Checkpoint:
    marker = Marker(epoch=3, batch_number=n, written_at=NOW - age_ms)
    offsets = {KV_LOG: [more.get("topic_id", "id"), offset]}
    return Checkpoint(marker, offsets, {"kv": more.get("layout", layout_of(KV))})


def facts(local: Checkpoint | None, why: str | None = None, **more: object) -> Facts:
    return replace(
        Facts(
            topology=APP,
            partition=2,
            marker=NEWEST,
            logs={KV_LOG: LogRange("id", 100, 1000), MEM_LOG: LogRange("id2", 0, 50)},
            local=LocalFacts(local, why, 5_000_000 if local else 0),
            free_bytes=10**12,
            now=NOW,
        ),
        **more,  # type: ignore[arg-type]
    )


def replays(plan: RestorePlan) -> dict[str, tuple[int, int, bool]]:
    return {s.store: (s.start, s.end, s.full) for s in plan.steps}


def verdicts(plan: RestorePlan) -> dict[str, str]:
    return {c.source: c.verdict for c in plan.candidates}


def test_a_directory_that_is_behind_replays_its_tail() -> None:
    plan = make_plan(facts(checkpoint()))
    assert (plan.task, plan.source, plan.choice) == ("app/2", LOCAL, LOCAL)
    assert replays(plan) == {"kv": (900, 1000, False), "mem": (0, 50, True)}
    assert (plan.epoch, plan.batch_number, plan.records, plan.discards) == (3, 9, 150, ())
    assert verdicts(plan) == {"local": "chosen", "changelog": "not needed"}
    assert plan.offsets == {KV_LOG: ["id", 1000], MEM_LOG: ["id2", 50]}


def test_at_the_newest_marker_only_memory_is_filled() -> None:
    plan = make_plan(facts(checkpoint(n=9)))
    assert replays(plan) == {"mem": (0, 50, True)}
    assert not plan.is_nothing
    disk = replace(APP, stores=(KV,))
    logs = {KV_LOG: LogRange("id", 100, 1000)}
    assert make_plan(facts(checkpoint(n=9), topology=disk, logs=logs)).is_nothing
    in_use = LocalFacts(checkpoint(n=9), None, 1, in_use=True)
    used = replace(facts(None), local=in_use)
    assert make_plan(used).is_nothing, "memory stores are filled already"


@pytest.mark.parametrize(
    ("held", "why"),
    [
        (checkpoint(topic_id="other"), "created again"),
        (checkpoint(offset=1001), "outside the log"),
        (checkpoint(offset=99), "outside the log"),
        (checkpoint(age_ms=DELETE_RETENTION_MS - AGE_MARGIN_MS + 1), "tombstones"),
    ],
)
def test_a_directory_that_is_not_valid_says_why(held: Checkpoint, why: str) -> None:
    plan = make_plan(facts(held))
    assert plan.source == CHANGELOG
    assert replays(plan) == {"kv": (100, 1000, True), "mem": (0, 50, True)}
    assert verdicts(plan) == {"local": "not valid", "changelog": "chosen"}
    assert why in plan.candidates[0].why
    assert "5.0 MB" in plan.discards[0]
    with pytest.raises(InvalidRequest, match=why):
        make_plan(facts(held), LOCAL)


def test_what_cannot_be_opened_is_not_valid() -> None:
    plan = make_plan(facts(None, "there is no directory"))
    assert (plan.source, plan.discards) == (CHANGELOG, ())
    assert plan.candidates[0].why == "there is no directory"


def test_what_was_set_aside_is_discarded_as_well() -> None:
    gone = LocalFacts(None, "there is no directory", aside_bytes=3_000_000)
    plan = make_plan(replace(facts(None), local=gone))
    (discarded,) = plan.discards
    assert discarded.startswith("what was set aside (3.0 MB): removed")
    both = LocalFacts(None, "cannot be opened", 5_000_000, aside_bytes=3_000_000)
    assert len(make_plan(replace(facts(None), local=both)).discards) == 2


def test_a_store_of_another_layout_is_built_beside_the_others() -> None:
    plan = make_plan(facts(checkpoint(layout="rocksdb/window/60000")))
    assert plan.source == LOCAL
    assert replays(plan)["kv"] == (100, 1000, True)


def test_a_wish_is_kept_or_refused() -> None:
    plan = make_plan(facts(checkpoint()), CHANGELOG)
    assert plan.source == CHANGELOG
    assert verdicts(plan) == {"local": "not needed", "changelog": "chosen"}
    assert plan.discards
    assert "commit 3/8" in plan.discards[0]
    with pytest.raises(InvalidRequest, match="no source 'tape'") as refused:
        make_plan(facts(checkpoint()), "tape")
    assert refused.value.details["known"] == [LOCAL, CHANGELOG]


def manifest(number: int, held: Checkpoint) -> Manifest:
    files = (FileEntry("1.sst", 7_000_000, "a" * 64), FileEntry("memory/mem", 9_000, "b" * 64))
    return Manifest(
        id=f"2026010{number}T000000000Z-00000000",
        app="app",
        partition=2,
        marker=held.marker,
        offsets=held.offsets,
        layouts=held.layouts,
        stores=APP.stores,
        files=files,
        digests={},
        created_at=held.marker.written_at,
    )


def with_snapshots(*found: Manifest, **more: object) -> Facts:
    return replace(facts(None, "there is no directory"), snapshots=found, **more)  # type: ignore[arg-type]


def test_the_newest_valid_snapshot_is_fetched_and_its_tail_replayed() -> None:
    newer, older = manifest(2, checkpoint(offset=950)), manifest(1, checkpoint(n=3, offset=500))
    plan = make_plan(with_snapshots(newer, older))
    assert (plan.source, plan.snapshot, plan.choice) == ("snapshot", newer.id, newer.id)
    assert replays(plan) == {"kv": (950, 1000, False), "mem": (0, 50, True)}
    assert plan.bytes > 7_000_000
    assert plan.needed_bytes < 7_009_000 + 20_000, "memory stores are not fetched"
    assert [c.verdict for c in plan.candidates] == [
        "not valid", "chosen", "not needed", "not needed",
    ]  # fmt: skip
    assert make_plan(with_snapshots(newer, older), older.id).snapshot == older.id
    assert make_plan(with_snapshots(newer, older), "snapshot").snapshot == newer.id


@pytest.mark.parametrize(
    ("held", "why"),
    [
        (checkpoint(topic_id="other"), "created again"),
        (checkpoint(offset=1001), "outside the log"),
        (checkpoint(offset=99), "outside the log"),
        (checkpoint(age_ms=DELETE_RETENTION_MS), "tombstones"),
        (checkpoint(layout="rocksdb/window/60000"), "none of the application's present stores"),
    ],
)
def test_a_snapshot_that_is_not_valid_says_why(held: Checkpoint, why: str) -> None:
    good = manifest(1, checkpoint(n=3))
    plan = make_plan(with_snapshots(manifest(2, held), good))
    assert plan.snapshot == good.id
    assert why in plan.candidates[1].why
    with pytest.raises(InvalidRequest, match=why):
        make_plan(with_snapshots(manifest(2, held)), manifest(2, held).id)
    assert make_plan(with_snapshots(manifest(2, held))).source == CHANGELOG


def test_what_turned_out_bad_and_storage_that_is_away() -> None:
    one = manifest(1, checkpoint())
    plan = make_plan(with_snapshots(one, refused={one.id: "1.sst was changed"}))
    assert plan.source == CHANGELOG
    assert plan.candidates[1].why == "1.sst was changed"
    plan = make_plan(with_snapshots(storage="s3://x cannot be read"))
    assert plan.source == CHANGELOG
    assert plan.candidates[1].why == "s3://x cannot be read"
    for wanted in ("snapshot", one.id):
        with pytest.raises(InvalidRequest, match=f"from {wanted}: s3://x cannot"):
            make_plan(with_snapshots(storage="s3://x cannot be read"), wanted)


def test_what_is_not_whole_is_named_with_the_reason() -> None:
    newest, older = manifest(3, checkpoint()).id, manifest(1, checkpoint()).id
    good = manifest(2, checkpoint())
    unlisted = {newest: "1.sst is missing", older: "has format 99"}
    plan = make_plan(with_snapshots(good, unlisted=unlisted))
    assert plan.snapshot == good.id
    assert [c.id for c in plan.candidates[1:-1]] == [newest, good.id, older], "newest first"
    reasons = {c.id: c.why for c in plan.candidates if c.verdict == "not valid"}
    assert {name: reasons[name] for name in unlisted} == unlisted
    assert RestorePlan.from_json(orjson.loads(orjson.dumps(plan.to_json()))) == plan
    with pytest.raises(InvalidRequest, match="has format 99"):
        make_plan(with_snapshots(good, unlisted=unlisted), older)
    found = with_snapshots(unlisted=unlisted, refused={newest: "1.sst was changed"})
    assert make_plan(found).source == CHANGELOG
    assert make_plan(found).candidates[1].why == "1.sst was changed", "what was seen says more"


def test_sizes_follow_what_was_seen_in_the_log() -> None:
    seen = {KV_LOG: Sample(record_bytes=1000, density=0.5)}
    plan = make_plan(facts(None, "gone", samples=seen))
    kv = next(s for s in plan.steps if s.store == "kv")
    assert (kv.records, kv.bytes) == (450, 450_000)
    # 450 entries of 1,000 bytes and 24 of RocksDB, 2.2 times: merged, beside what is merged
    assert plan.needed_bytes == 1_013_760, "memory stores need none"
    long = facts(
        None, "gone", logs={KV_LOG: LogRange("id", 0, 10**8), MEM_LOG: LogRange("i", 0, 0)}
    )
    assert make_plan(long).seconds > 100


def test_a_plan_travels_as_json() -> None:
    plan = make_plan(facts(checkpoint(offset=99)))
    assert RestorePlan.from_json(orjson.loads(orjson.dumps(plan.to_json()))) == plan
