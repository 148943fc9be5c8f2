"""Which declaration may follow which."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from state_lib.evolution import contradictions
from state_lib.specs import DAY_MS, OutputSpec, StoreSpec, Topology

COUNTS = StoreSpec("counts", kind="timestamped-key-value", key_serde="utf8", value_serde="int64")
HOURS = StoreSpec(
    "hours",
    kind="window",
    key_serde="utf8",
    value_serde={"struct": [["n", "int64"], ["delay", "float64"]]},
    window_size_ms=3_600_000,
    retention_ms=DAY_MS,
)
ROUTE = {"struct": [["origin", "utf8"], ["dest", "utf8"]]}
LISTED = {"struct": [["n", "int64"], ["delay", {"array": "float64"}]]}
OLD = Topology("app", 4, (COUNTS, HOURS), sources=("lines",))


def test_what_was_published_may_follow_itself() -> None:
    published = Topology.from_json(orjson.loads(orjson.dumps(OLD.to_json())))
    fields = HOURS.value_serde["struct"]
    tuples = replace(HOURS, value_serde={"struct": tuple(map(tuple, fields))})
    assert contradictions(published, OLD) == []
    assert contradictions(published, replace(OLD, stores=(HOURS, COUNTS))) == []
    assert contradictions(published, replace(OLD, stores=(COUNTS, tuples))) == []


@pytest.mark.parametrize(
    "new",
    [
        replace(OLD, stores=(*OLD.stores, StoreSpec("more"))),
        replace(OLD, sources=("lines", "more")),
        replace(OLD, outputs=(OutputSpec("out", "counts"),)),
        replace(OLD, stores=(replace(COUNTS, backend="memory", max_bytes=1000), HOURS)),
        replace(OLD, stores=(COUNTS, replace(HOURS, retention_ms=2 * DAY_MS, grace_ms=1000))),
    ],
)
def test_growth_is_allowed(new: Topology) -> None:
    assert contradictions(OLD, new) == []


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (replace(OLD, partitions=5), ["4 partitions", "5"]),
        (replace(OLD, sources=("theirs",)), ["['lines']", "['theirs']"]),
        (replace(OLD, stores=(COUNTS,)), ["a store 'hours'", "['counts']"]),
        (replace(OLD, stores=(replace(COUNTS, value_serde="utf8"), HOURS)), ["'int64'", "'utf8'"]),
        (replace(OLD, stores=(replace(COUNTS, key_serde="bytes"), HOURS)), ["key_serde", "bytes"]),
        (replace(OLD, stores=(replace(COUNTS, kind="key-value"), HOURS)), ["kind='timestamped"]),
        (replace(OLD, stores=(COUNTS, replace(HOURS, window_size_ms=1))), ["3600000", "1"]),
        (replace(OLD, stores=(COUNTS, replace(HOURS, key_serde=ROUTE))), ["'utf8'", "'dest'"]),
        (replace(OLD, stores=(COUNTS, replace(HOURS, value_serde=LISTED))), ["'array'"]),
    ],
)
def test_a_contradiction_names_both_sides(new: Topology, words: list[str]) -> None:
    (found,) = contradictions(OLD, new)
    assert all(word in found for word in words), found


def test_what_is_within_a_field_is_fixed_too() -> None:
    def holding(kind: object) -> Topology:
        spec = replace(HOURS, value_serde={"struct": [["x", kind]]})
        return Topology("app", 4, (spec,))

    for one, other in (
        ("decimal(10,2)", "decimal(10,3)"),
        ({"struct": [["a", "int64"]]}, {"struct": [["a", "date"]]}),
        ({"struct": [["a", "int64"]]}, {"struct": [["b", "int64"]]}),
        ({"map": ["utf8", "int64"]}, {"map": ["utf8", "utf8"]}),
    ):
        published = Topology.from_json(orjson.loads(orjson.dumps(holding(one).to_json())))
        assert contradictions(published, holding(one)) == []
        assert len(contradictions(published, holding(other))) == 1


def test_another_job_differs_in_everything() -> None:
    other = Topology("app", 2, (StoreSpec("theirs"),), sources=("orders",))
    assert len(contradictions(OLD, other)) == 4
