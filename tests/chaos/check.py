"""The chaos audit: recompute everything from the source with plain Python and compare.

Shares no code with state_lib but the scan client: what a store should hold is worked out here from
source records, recorded batches and the rules of docs/protocol.md alone.
"""

from __future__ import annotations

import json
import struct
import time
from collections import Counter, defaultdict
from typing import Any

from confluent_kafka.admin import AdminClient

from state_lib.client.flight import FlightHostClient
from state_lib.config import Settings
from state_lib.protocol.placement import owner_of
from state_lib.serdes import serde_from
from tests.support.fold import committed
from tests.support.waiting import NotCaughtUp, StandsStill, deadline_in

HOUR = 3_600_000
GRACE = 1_800_000
TASKS = 4
Entries = dict[bytes, Any]


def records(bootstrap: str, topic: str) -> list[tuple[int, int, int, bytes | None, bytes | None]]:
    """Committed records of a topic: partition, offset, timestamp, key, value; by partition."""
    known = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, timeout=30)
    out: list[Any] = []
    for p in sorted(known.topics[topic].partitions):
        for message in committed(bootstrap, topic, p):
            stamp = message.timestamp()[1]
            out.append((p, message.offset(), stamp, message.key(), message.value()))
    return out


def standing(settings: Settings, app: str, topic: str, timeout_s: float) -> list[Any]:
    """Wait until every task stands at the source's end; returns the markers.

    Raises:
        NotCaughtUp: the tasks stand below it, and did advance in the last third of the time.
        StandsStill: they did not, or nobody knows where they are.
        AssertionError: they stand beyond it.
    """
    ends: dict[int, int] = defaultdict(int)
    for partition, offset, *_ in records(settings.bootstrap_servers, topic):
        ends[partition] = offset + 1
    want = dict(ends)
    started, deadline = time.monotonic(), deadline_in(timeout_s)
    seen: list[Any] = []
    places: list[dict[int, int]] = []
    advanced = started
    while time.monotonic() < deadline:
        try:
            seen = [_client(settings, app, p).marker(app, p) for p in range(TASKS)]
        except Exception as error:  # noqa: BLE001 - hosts are being killed
            seen = [error]
        else:
            if places != (places := [_of_topic(m, topic) for m in seen]):
                advanced = time.monotonic()
            if all(place == want for place in places):
                return seen
            beyond = [p for place in places for p in place if place[p] > want.get(p, 0)]
            assert not beyond, f"beyond the source's end: wanted {want}, got {seen}"
        time.sleep(0.3)
    message = f"not caught up in {timeout_s} s: wanted {want}, got {seen}"
    if places and deadline - advanced < (deadline - started) / 3:
        raise NotCaughtUp(message)
    raise StandsStill(message)


def _of_topic(marker: Any, topic: str) -> dict[int, int]:
    return {p: offset for (of, p), offset in marker.positions.items() if of == topic}


def tasks_of(settings: Settings, app: str, host: str) -> list[int]:
    """The tasks that a host owns."""
    return [p for p in range(TASKS) if owner_of(app, p, settings.host_addresses).id == host]


def check(settings: Settings, app: str, topic: str, timeout_s: float = 120) -> Counter[str]:
    """Wait for the end of the source, then compare everything; returns the drop counters."""
    markers = standing(settings, app, topic, timeout_s)
    bootstrap = settings.bootstrap_servers
    source = records(bootstrap, topic)
    batches = effective(bootstrap, app, topic)
    totals, hourly, dropped, letters = expected(source, batches)
    for store, want in (("totals", totals), ("hourly", hourly)):
        have = scan(settings, app, store)
        wrong = {
            k: (want.get(k), have.get(k))
            for k in want.keys() | have.keys()
            if want.get(k) != have.get(k)
        }
        assert not wrong, (
            f"{store}: {len(wrong)} of {len(want)} differ, such as {list(wrong.items())[:3]}"
        )
    counted: Counter[str] = Counter()
    for marker in markers:
        counted.update(marker.dropped)
    assert counted == dropped, f"dropped: counted {counted}, should be {dropped}"
    dead = [r[3] for r in records(bootstrap, f"{app}-dead-letters")]
    assert sorted(k or b"" for k in dead) == sorted(letters), "dead letters differ"
    check_outputs(bootstrap, app, totals)
    return dropped


def effective(bootstrap: str, app: str, topic: str) -> list[dict[str, Any]]:
    """Recorded batches, highest epoch first, newest first within: the first that covers counts."""
    raw = [json.loads(r[4] or b"{}") for r in records(bootstrap, f"{app}-progress")]
    raw = [one for one in raw if "kind" not in one]  # the others are restores
    order = sorted(enumerate(raw), key=lambda pair: (pair[1]["epoch"], pair[0]), reverse=True)
    return [
        {
            "from": {int(p): o for p, o in b["from"].get(topic, {}).items()},
            "to": {int(p): o for p, o in b["to"].get(topic, {}).items()},
            "clock": b["clock"],
        }
        for _, b in order
    ]


def expected(
    source: list[tuple[int, int, int, bytes | None, bytes | None]], batches: list[dict[str, Any]]
) -> tuple[Entries, Entries, Counter[str], list[bytes]]:
    """What the stores, the counters and the dead letters should be."""
    totals: dict[str, dict[str, Any]] = {}
    order: dict[str, tuple[int, int, int]] = {}
    hourly: Counter[tuple[str, int]] = Counter()
    dropped: Counter[str] = Counter()
    letters: list[bytes] = []
    for partition, offset, stamp, key, value in source:
        try:
            event = json.loads(value or b"")
        except ValueError:
            dropped["undecodable"] += 1
            letters.append(key or b"")
            continue
        if event.get("x") is None:
            dropped["wrong-schema"] += 1
            letters.append(key or b"")
            continue
        name, x = event["k"], event["x"]
        if name is None:
            dropped["null-key:totals"] += 1
            dropped["null-key:hourly"] += 1
            continue
        entry = totals.setdefault(name, {"n": 0, "total": 0, "seen": None})
        entry["n"] += 1
        entry["total"] += x
        if (stamp, partition, offset) > order.get(name, (-1, -1, -1)):
            order[name] = (stamp, partition, offset)
            entry["seen"] = x
        start = stamp - stamp % HOUR
        clock = next(
            b["clock"]
            for b in batches
            if b["from"].get(partition, 0) <= offset < b["to"].get(partition, 0)
        )
        if start + HOUR + GRACE <= clock:
            dropped["late:hourly"] += 1
        else:
            hourly[name, start] += 1
    windows = {k.encode() + struct.pack(">qi", s, 0): n for (k, s), n in hourly.items()}
    return {k.encode(): v for k, v in totals.items()}, dict(windows), dropped, letters


def scan(settings: Settings, app: str, store: str) -> Entries:
    """Every live entry of a store, decoded, without the timestamp and hidden fields."""
    out: Entries = {}
    for partition in range(TASKS):
        client = _client(settings, app, partition)
        _, chunks = client.scan(app, partition, store)
        for chunk in chunks:
            for key, value in zip(
                chunk.column(0).to_pylist(), chunk.column(1).to_pylist(), strict=True
            ):
                assert key not in out, f"{key!r} is in two tasks"
                out[key] = _plain(store, value[8:])
    return out


def check_outputs(bootstrap: str, app: str, totals: Entries) -> None:
    """Per key, counts rise strictly in offset order and end at the store's."""
    last: dict[bytes, int] = {}
    for _, _, _, key, value in records(bootstrap, f"{app}-out"):
        n = json.loads(value or b"{}")["n"]
        assert n > last.get(key or b"", 0), (
            f"output of {key!r} repeats: {n} after {last[key or b'']}"
        )
        last[key or b""] = n
    assert last == {k: v["n"] for k, v in totals.items()}, "outputs differ from the store"


def _client(settings: Settings, app: str, partition: int) -> FlightHostClient:
    address = owner_of(app, partition, settings.host_addresses)
    return FlightHostClient(address, settings.read_token())


_TOTALS = serde_from(
    {
        "struct": [
            ["_last_ts", "int64"],
            ["_last_src", "int64"],
            ["_last_offset", "int64"],
            ["n", "int64"],
            ["total", "int64"],
            ["seen", "int64"],
        ]
    }
)


def _plain(store: str, value: bytes) -> Any:
    if store == "hourly":
        return int.from_bytes(value, "big")
    return {k: v for k, v in _TOTALS.deserialize(value).items() if not k.startswith("_")}
