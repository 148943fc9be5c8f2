"""A processor's states, timers and outputs through SIGKILL at the points of the protocol, audited.

The audit shares no code with state_lib but the scan client: see `tests.chaos.check`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from state_lib.client.snapshots import SnapshotClient
from state_lib.failpoints import NAMES
from state_lib.protocol.placement import owner_of
from tests.chaos.check import GRACE, TASKS, _client, effective, records, standing
from tests.chaos.cluster import Cluster
from tests.chaos.conftest import Events
from tests.chaos.supervisor import Supervisor
from tests.support.waiting import until

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]
JOB = Path(__file__).with_name("process_job.py")
Periods = set[tuple[str, int]]
"""Keys, and when the five minutes end."""
FIVE_MINUTES = 300_000
COMMIT_POINTS = ["commit.before_transaction", "commit.after_kafka", "commit.after_rocksdb"]
WORKER_POINTS = ["exchange.before_commit", "exchange.after_commit"]
DRIVER_POINTS = [
    {"driver.before_batch": "kill"},
    {"driver.after_record": "kill"},
    {"driver.after_batch": "kill"},
    {"exchange.before_commit": "kill-jvm"},
    # One task has it: the next driver dies while it repeats that batch for the others.
    {"exchange.after_commit": "kill-jvm", "driver.after_run_record": "kill"},
]
BETWEEN = "driver.between_queries"
RESTORE_POINTS: dict[str, list[tuple[str, ...]]] = {
    "lost": [
        ("restore.before_build", "restore.after_run", "restore.after_checkpoint"),
        ("restore.after_store", "restore.during_swap"),
        ("restore.before_checkpoint", "restore.after_swap"),
    ],
    "ruined": [("restore.before_swap", "restore.before_cleanup")],
    "with a snapshot": [("restore.during_fetch", "restore.after_fetch")],
}
"""By what has become of the disk. Those of a row act one after the other in one restore. Where none
is left, the next start takes a new directory that is whole: its points come last."""
PAST_POINTS: list[tuple[str, ...]] = [
    ("past.after_fetch", "past.before_begin", "past.after_begin"),
    ("past.after_chunk", "past.after_marker"),
    ("past.before_marker", "past.after_checkpoint"),
]
"""In the same way."""
OF_COMMAND = {"past.stopped", "past.claimed"}
"""In the process that asks for it: tests/integration/restore kills that."""
ELSEWHERE = ("snapshot.", "removal.", "repair.")
"""What happens there is the same whatever computed the state; their own tests kill it."""


def test_no_point_is_left_out() -> None:
    rows = [*(row for rows in RESTORE_POINTS.values() for row in rows), *PAST_POINTS]
    points = [*COMMIT_POINTS, *(p for row in DRIVER_POINTS for p in row), BETWEEN]
    points += [point for row in rows for point in row]
    wanted = [n for n in NAMES if not n.startswith(ELSEWHERE) and n not in OF_COMMAND]
    assert sorted(points) == sorted(wanted)


def test_processors_are_exact(cluster: Cluster, events: Events, app: str) -> None:
    events.more(3000)
    driver = cluster.driver(app, events.topic, job=JOB)
    driver.wait_event("batch")
    for point in COMMIT_POINTS:
        cluster.arm(f"{point}=kill")
        events.more(1500)
        cluster.wait_fired(point)
        audit(cluster, app, events.topic)
    for point in WORKER_POINTS:
        cluster.arm(f"{point}=kill-worker")
        events.more(1500)
        cluster.wait_fired(point)
        audit(cluster, app, events.topic)
    assert driver.process.poll() is None, "Spark tries a task again"
    for points in DRIVER_POINTS:
        cluster.arm(";".join(f"{point}={action}" for point, action in points.items()))
        events.more(1500)
        for point in points:
            cluster.wait_fired(point)
            assert driver.wait(60) != 0
            driver = cluster.driver(app, events.topic, job=JOB)
        audit(cluster, app, events.topic)
    assert driver.stop() == 0

    cluster.arm(f"{BETWEEN}=kill")
    events.more(1500)
    driver = cluster.driver(app, events.topic, job=JOB)  # its first full batch ends a query
    cluster.wait_fired(BETWEEN)
    assert driver.wait(60) != 0
    driver = cluster.driver(app, events.topic, job=JOB)
    audit(cluster, app, events.topic)
    assert driver.stop() == 0


def test_processors_on_lost_disks(cluster: Cluster, events: Events, app: str) -> None:
    """A host loses its disk, or what is on it, and is killed again and again as it restores."""
    events.more(3000)
    driver = cluster.driver(app, events.topic, job=JOB)
    audit(cluster, app, events.topic)
    host = owner_of(app, 0, cluster.settings.host_addresses).id
    state = cluster.settings.home / "state" / host / app
    for damage, points in ((how, row) for how, rows in RESTORE_POINTS.items() for row in rows):
        if damage == "with a snapshot":
            SnapshotClient(cluster.settings, app).savepoint()
        pid = cluster.pid(host)
        os.kill(pid, signal.SIGSTOP)  # so that it writes nothing any more
        if damage == "ruined":
            for current in state.glob("*/CURRENT"):
                current.write_text("MANIFEST-999999\n")
        else:
            shutil.rmtree(state)
        cluster.arm(";".join(f"{point}=kill" for point in points))
        os.kill(pid, signal.SIGKILL)
        for point in points:
            cluster.wait_fired(point)
        events.more(1500)
        audit(cluster, app, events.topic)
    assert driver.stop() == 0


def test_processors_go_back(cluster: Cluster, events: Events, app: str) -> None:
    """To a savepoint and up again, ticks included; what was told stays told once."""
    settings = cluster.settings
    events.more(3000)
    supervisor = Supervisor(cluster, app, events.topic, job=JOB)
    try:
        supervisor.until("committing")
        audit(cluster, app, events.topic)
        to = SnapshotClient(settings, app).savepoint().id
        events.more(3000)
        for points in PAST_POINTS:
            supervisor.until_caught_up()
            audit(cluster, app, events.topic)
            cluster.arm(";".join(f"{point}=kill" for point in points))
            cluster.go_back(app, to)
            for point in points:
                assert (cluster.fired / point).exists(), point
            supervisor.until("restart")
            supervisor.until("committing")
        audit(cluster, app, events.topic)
        assert not {"superseded", "gave_up"} & set(supervisor.names())
    finally:
        supervisor.close()


def audit(cluster: Cluster, app: str, topic: str) -> None:
    """Compare everything with what source and record say."""
    settings = cluster.settings
    markers = standing(settings, app, topic, 120)
    bootstrap = settings.bootstrap_servers
    batches = effective(bootstrap, app, topic)
    sums, readings, periods, late = expected(records(bootstrap, topic), batches)
    counted: Counter[str] = Counter()
    for marker in markers:
        counted.update(marker.dropped)
    assert counted["late:periods"] == late

    have_sums = {k.decode(): _numbers(v, 2) for k, v in scan(cluster, app, "sums").items()}
    assert have_sums == sums
    seen: dict[str, list[int]] = defaultdict(list)
    for key, value in scan(cluster, app, "readings").items():
        size = int.from_bytes(key[:4], "big")
        assert int.from_bytes(key[4 + size :], "big") == len(seen[key[4 : 4 + size].decode()])
        seen[key[4 : 4 + size].decode()] += _numbers(value, 1)
    assert {k: sorted(v) for k, v in seen.items()} == readings

    clock = min(marker.stream_time_ms for marker in markers)
    until(lambda: _told(bootstrap, app).keys() >= due(periods, clock), 60, "timers that are due")
    told = _told(bootstrap, app)
    assert set(told.values()) == {1}, f"told twice: {[k for k, n in told.items() if n > 1]}"
    assert told.keys() <= periods
    until(
        lambda: remembered(cluster, app) == as_told(periods, set(_told(bootstrap, app))),
        60,
        "in the map what was told, and among the timers all else",
    )


def as_told(periods: Periods, told: Periods) -> list[Periods]:
    """What `remembered` is to give: whatever was not told of has a timer still, kept twice."""
    return [periods & told, periods - told, periods - told]


def remembered(cluster: Cluster, app: str) -> list[Periods]:
    """Periods in the map of those that were told, among timers by time, and by key."""
    told: Periods = set()
    for key, value in scan(cluster, app, "told").items():
        assert _numbers(value, 1) == [1]
        size = int.from_bytes(key[:4], "big")
        (end,) = _numbers(key[4 + size :], 1)
        told.add((key[4 : 4 + size].decode(), end))
    by_time: Periods = set()
    by_key: Periods = set()
    for key in scan(cluster, app, "timers"):
        if key[0] == 0:
            by_time.add((key[9:].decode(), _time(key[1:9])))
        elif key[0] == 1:
            by_key.add((key[5:-8].decode(), _time(key[-8:])))
    return [told, by_time, by_key]


def expected(
    source: list[tuple[int, int, int, bytes | None, bytes | None]], batches: list[dict[str, Any]]
) -> tuple[dict[str, list[int]], dict[str, list[int]], Periods, int]:
    """Sums and readings by key, periods to be told of, and how many were late."""
    sums: dict[str, list[int]] = {}
    readings: dict[str, list[int]] = defaultdict(list)
    periods: Periods = set()
    late = 0
    for partition, offset, stamp, _, value in source:
        try:
            event = json.loads(value or b"")
        except ValueError:
            continue
        name, x = event["k"], event.get("x")
        if name is None or x is None:
            continue
        clock = next(
            b["clock"]
            for b in batches
            if b["from"].get(partition, 0) <= offset < b["to"].get(partition, 0)
        )
        if stamp + GRACE < clock:
            late += 1
            continue
        entry = sums.setdefault(name, [0, 0])
        entry[0] += 1
        entry[1] += x
        readings[name].append(x)
        periods.add((name, stamp - stamp % FIVE_MINUTES + FIVE_MINUTES))
    return sums, {k: sorted(v) for k, v in readings.items()}, periods, late


def due(periods: Periods, clock: int) -> Periods:
    return {one for one in periods if one[1] <= clock - GRACE}


def scan(cluster: Cluster, app: str, state: str) -> dict[bytes, bytes]:
    """All entries of a state's store, in the order of the scan."""
    out: dict[bytes, bytes] = {}
    for partition in range(TASKS):
        _, chunks = _client(cluster.settings, app, partition).scan(
            app, partition, f"periods-{state}"
        )
        for chunk in chunks:
            columns = (chunk.column(i).to_pylist() for i in range(2))
            for key, value in zip(*columns, strict=True):
                assert key not in out, f"{key!r} is in two tasks"
                out[key] = value
    return out


def _told(bootstrap: str, app: str) -> Counter[tuple[str, int]]:
    found: Counter[tuple[str, int]] = Counter()
    for *_, value in records(bootstrap, f"{app}-periods"):
        said = json.loads(value or b"{}")
        found[said["k"], said["until"]] += 1
    return found


def _time(raw: bytes) -> int:
    """Eight bytes that sort as times do."""
    return int.from_bytes(raw, "big") - 2**63


def _numbers(value: bytes, count: int) -> list[int]:
    """A packed struct of longs: a byte that says which are null, then eight bytes each."""
    assert value[0] == 0
    return [int.from_bytes(value[1 + 8 * i : 9 + 8 * i], "big", signed=True) for i in range(count)]
