"""Which directory or snapshot one may go on from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from state_lib.changelog.log import LogRange
from state_lib.changelog.topics import DELETE_RETENTION_MS
from state_lib.protocol.marker import Marker, now_ms
from state_lib.restore.validity import AGE_MARGIN_MS, judge
from state_lib.specs import StoreSpec, Topology
from state_lib.stores.task_stores import Checkpoint, layout_of
from tests.support.apps import HOUR, KV, WIN

LOG = "app-kv-changelog"
APP = Topology("app", 1, (KV,))
NEWEST = Marker(epoch=1, batch_number=5)
OLD = DELETE_RETENTION_MS - AGE_MARGIN_MS + 60_000


def directory(age_ms: int = 0, offset: int = 50, n: int = 4, topic_id: str = "id") -> Checkpoint:
    marker = Marker(epoch=1, batch_number=n, written_at=now_ms() - age_ms)
    return Checkpoint(marker, {LOG: [topic_id, offset]}, {"kv": layout_of(KV)})


@pytest.mark.parametrize(
    ("checkpoint", "log", "why"),
    [
        (None, LogRange("id", 0, 100), "no checkpoint"),
        (directory(), LogRange("id", 0, 100), None),
        (directory(), LogRange("other", 0, 100), "created again"),
        (directory(n=5), LogRange("other", 0, 100), "created again"),
        (directory(offset=101), LogRange("id", 0, 100), "outside"),
        (directory(offset=100), LogRange("id", 0, 100), None),
        (directory(offset=50), LogRange("id", 50, 100), None),
        (directory(offset=49), LogRange("id", 50, 100), "outside"),
        (directory(n=5, offset=49), LogRange("id", 50, 100), None),
        (directory(n=5, offset=101), LogRange("id", 0, 100), "outside"),
        (directory(OLD), LogRange("id", 0, 100), "tombstones"),
        (directory(OLD - HOUR), LogRange("id", 0, 100), None),
        (directory(OLD, offset=100), LogRange("id", 0, 100), None),
        (directory(OLD, offset=99, n=5), LogRange("id", 0, 100), None),
        (directory(25 * HOUR), LogRange("id", 0, 100, 24 * HOUR), "tombstones"),
        (directory(22 * HOUR), LogRange("id", 0, 100, 24 * HOUR), None),
    ],
)
def test_valid_or_why_not(checkpoint: Checkpoint | None, log: LogRange, why: str | None) -> None:
    found = judge(APP, checkpoint, {LOG: log}, NEWEST, now_ms())
    assert (found.why_not is None) == (why is None), found
    assert why is None or why in str(found.why_not)
    assert found.current is (checkpoint is not None and checkpoint.marker.batch_number == 5)


@pytest.mark.parametrize(
    ("age", "offset", "ends", "state", "ok"),
    [
        (0, 99, {LOG: 99}, "running", True),  # all segments went: the control record as well
        (OLD, 99, {LOG: 99}, "running", True),
        (0, 98, {LOG: 99}, "running", False),
        (0, 99, {}, "running", False),
        (0, 99, {LOG: 99}, "restoring", False),
        (0, 101, {LOG: 99}, "running", False),
    ],
)
def test_where_nothing_is_left_to_replay_the_start_of_the_log_does_not_matter(
    age: int, offset: int, ends: dict[str, int], state: str, ok: bool
) -> None:
    newest = replace(NEWEST, ends=ends, state=state)
    found = judge(APP, directory(age, offset), {LOG: LogRange("id", 100, 100)}, newest, now_ms())
    assert (found.why_not is None) == ok, found


def test_a_store_that_was_added_does_not_count() -> None:
    more = replace(APP, stores=(KV, StoreSpec("new")))
    logs = {LOG: LogRange("id", 0, 100), "app-new-changelog": LogRange("id2", 0, 7)}
    found = judge(more, directory(), logs, NEWEST, now_ms())
    assert (found.why_not, set(found.kept)) == (None, {LOG})


@pytest.mark.parametrize(
    "becomes", [replace(KV, kind="timestamped-key-value"), replace(KV, backend="memory")]
)
def test_a_store_of_another_layout_is_not_kept(becomes: StoreSpec) -> None:
    """Whatever its log says: it is built from that anew."""
    logs = {LOG: LogRange("other", 90, 100)}
    found = judge(replace(APP, stores=(becomes,)), directory(OLD), logs, NEWEST, now_ms())
    assert (found.why_not, found.kept) == (None, {})


@pytest.mark.parametrize(
    ("epoch", "state", "kept"),
    [(1, "running", False), (3, "restoring", False), (3, "running", True), (4, "running", True)],
)
def test_windows_of_before_a_restore_to_the_past_are_not_kept(
    epoch: int, state: str, kept: bool
) -> None:
    """They may have been dropped as expired, and live again. Other stores are."""
    both = replace(APP, stores=(KV, WIN))
    logs = {LOG: LogRange("id", 0, 100), "app-win-changelog": LogRange("id2", 0, 100)}
    at = Marker(epoch=epoch, batch_number=1, state=state, written_at=now_ms())
    layouts = {s.name: layout_of(s) for s in both.stores}
    checkpoint = Checkpoint(at, {t: [g.topic_id, 50] for t, g in logs.items()}, layouts)
    found = judge(both, checkpoint, logs, Marker(epoch=4, batch_number=2, rewound=3), now_ms())
    assert found.why_not is None
    assert set(found.kept) == ({LOG, "app-win-changelog"} if kept else {LOG})
