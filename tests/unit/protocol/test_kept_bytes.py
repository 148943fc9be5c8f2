"""What an older version wrote is read, and what this one writes is the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import orjson

from state_lib.changelog.progress import Recorded
from state_lib.executor.plan import BatchPlan
from state_lib.protocol.marker import CommitHeader, Marker
from state_lib.protocol.positions import Positions
from state_lib.restore.past import PastPlan
from state_lib.snapshots.manifest import parse
from state_lib.snapshots.savepoints import Savepoint
from state_lib.specs import Topology

FILE = Path(__file__).parents[2] / "support" / "kept_bytes.txt"
KEPT = dict(line.split(" ", 1) for line in FILE.read_text().splitlines())
"""Written before positions had a type of their own; partition 10 is the first that text sorts."""


def test_of_markers() -> None:
    raw = KEPT["marker"].encode()
    marker = Marker.from_bytes(raw)
    assert marker.positions == {("s", 2): 30, ("s", 10): 7, ("t", 0): 1}
    assert marker.maxima == {("s", 2): 9000}
    assert marker.to_bytes() == raw


def test_of_commits() -> None:
    raw = KEPT["header"].encode()
    header = CommitHeader.from_json(orjson.loads(raw))
    assert header.to["s", 10] == 8
    assert orjson.dumps(header.to_json()) == raw


def test_of_recorded_batches() -> None:
    plan = BatchPlan(
        7, 4,
        Positions({("s", 2): 30, ("s", 10): 7, ("t", 0): 1}),
        Positions({("s", 2): 40, ("s", 10): 8, ("t", 0): 1}),
        8500, 8600, 10, {"s": "id"}, (1,), "code", 8, {"k": 9},
        repeated=True, numbered=(("s", 2), ("t", 0)), recorded_in="log", batch_time=8200,
    )  # fmt: skip
    raw = KEPT["record"].encode()
    assert orjson.dumps(plan.record()) == raw
    assert Recorded.from_json(orjson.loads(raw), 9).to == {("s", 2): 40, ("t", 0): 1}


def test_of_manifests() -> None:
    raw = KEPT["manifest"].encode()
    manifest = parse(raw, "20260101T000000000Z-00000000", "app", 0, "file:///")
    assert manifest.marker.positions["s", 10] == 8
    assert orjson.loads(manifest.to_bytes()) == orjson.loads(raw)


def test_of_savepoints() -> None:
    """Their positions, number and time have the names that they always had."""
    raw = Savepoint("id", "app", 7, 4, 8500, {"s": {"2": 40}}, ("x",), 5).to_bytes()
    names = ["format", "id", "app", "epoch", "n", "clock", "positions", "snapshots", "created_at"]
    told = orjson.loads(raw)
    assert list(told) == [*names, "checksum"]
    assert (told["n"], told["clock"]) == (4, 8500)


def test_of_topologies() -> None:
    """A host reads fields by name, and refuses a store or an output with one that it lacks."""
    store = {
        "name": "kv", "kind": "key-value", "backend": "rocksdb", "key_serde": "bytes",
        "value_serde": "bytes", "window_size_ms": 0, "grace_ms": 0, "retention_ms": 0,
        "max_bytes": 268435456, "state": "",
    }  # fmt: skip
    said = {
        "app": "app", "partitions": 4, "stores": [store],
        "outputs": [{"topic": "out", "store": "kv"}, {"topic": "due", "store": "kv"}],
        "sources": ["s"], "extra": {"code": "c"},
    }  # fmt: skip
    topology = Topology.from_json(said)
    assert orjson.dumps(topology.to_json()) == orjson.dumps(said)
    outputs = tuple(replace(o, dated=o.topic == "due") for o in topology.outputs)
    dated = replace(topology, outputs=outputs)
    assert orjson.loads(orjson.dumps(dated.to_json())) == said | {"dated": ["due"]}
    assert Topology.from_json(said | {"dated": ["due"]}) == dated


def test_of_plans_to_go_back() -> None:
    said = {
        "task": "app/0", "snapshot": "x", "epoch": 1, "n": 4, "written_at": 1_000,
        "positions": {}, "topic_ids": {}, "recorded": -1, "clock": -1, "from_epoch": 1,
        "from_n": 9, "published": {}, "records": 60, "bytes": 1, "republish": False,
        "codes": [], "discards": [],
    }  # fmt: skip
    kept = PastPlan.from_json(said).to_json()
    assert {name: kept[name] for name in ("n", "clock", "from_n")} == {
        "n": 4, "clock": -1, "from_n": 9,
    }  # fmt: skip
    assert PastPlan.from_json(kept).to_json() == kept
