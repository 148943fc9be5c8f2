"""The comparison itself, with the expected side tampered with; and that recomputes stand alone."""

import ast
import datetime as dt
import json
from copy import deepcopy
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from state_lib.audit import AuditReport, Comparison
from state_lib.audit.actual import Entries, _output_row, comparable, expected_output
from state_lib.audit.compare import by_key, compare, rows_of, shown
from state_lib.audit.run import Actual, assess
from state_lib.audit.standing import Standing
from state_lib.protocol.marker import Marker
from state_lib.protocol.positions import Positions
from state_lib.specs import OutputSpec, StoreSpec, Topology

Rows = dict[tuple[Any, int | None], dict[str, Any]]
JOBS = Path(__file__).parents[2] / "jobs"
HOUR = 3_600_000
TOPOLOGY = Topology(
    "tiny",
    2,
    (
        StoreSpec("counts", "timestamped-key-value", key_serde="utf8", value_serde="int64"),
        StoreSpec("hours", "window", window_size_ms=HOUR, retention_ms=24 * HOUR),
    ),
    (OutputSpec("counts-out", "counts"),),
)
EXPECTED: dict[str, Any] = {
    "stores": {
        "counts": [
            {"key": "a", "timestamp": 5, "value": 2},
            {"key": "b", "timestamp": 9, "value": 1},
        ],
        "hours": [{"key": b"k", "start": 30 * HOUR, "timestamp": 30 * HOUR, "_x": 1, "n": None}],
    },
    "digests": {"counts": "11/2"},
    "dropped": {"late:hours": 3, "future": 0},
    "dead_letters": [("src", 0, 7, "undecodable")],
    "rising": {"counts-out": ["count"]},
}


def actual() -> Actual:
    """What `EXPECTED` describes."""
    rows: Rows = {
        ("a", None): {"timestamp": 5, "value": 2},
        ("b", None): {"timestamp": 9, "value": 1},
    }
    sent: Rows = {
        ("a", None): {"timestamp": 5, "count": 2},
        ("b", None): {"timestamp": 9, "count": 1},
    }
    hours: Rows = {(b"k", 30 * HOUR): {"timestamp": 30 * HOUR, "_x": 1, "n": None}}
    return Actual(
        {"counts": Entries(rows, digest="11/2"), "hours": Entries(hours, digest="22/1")},
        {"counts-out": Entries(sent)},
        {("src", 0, 7, "undecodable"): 1},
        {"late:hours": 3},
    )


def differing(expected: dict[str, Any], there: Actual | None = None) -> dict[str, Comparison]:
    found = assess(TOPOLOGY, 40 * HOUR, expected, there or actual())
    return {f"{c.kind} {c.name}".strip(): c for c in found if not c.clean}


ROUTES = StoreSpec(
    "routes",
    "timestamped-key-value",
    key_serde={"struct": [["origin", "utf8"], ["day", "date"]]},
    value_serde={"struct": [["_x", "int64"], ["least", "decimal(5,2)"], ["at", "timestamp"]]},
)


def test_keys_of_several_columns_are_compared_by_them() -> None:
    day, noon = dt.date(2013, 1, 31), dt.datetime(2013, 1, 31, 12, tzinfo=dt.UTC)
    fields = {"least": Decimal("1.50"), "at": noon}
    row = {"key": {"origin": "JFK", "day": day}, "timestamp": 5, "_x": 1, **fields}
    rows = by_key([row])
    assert rows == {(("JFK", day), None): {"timestamp": 5, "_x": 1, **fields}}
    (expected,) = expected_output(rows, ROUTES).values()
    assert expected == {"timestamp": 5, "least": "1.50", "at": "2013-01-31T12:00:00.000Z"}
    assert "('JFK', datetime.date(2013, 1, 31))" in shown((("JFK", day), None))


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ({"origin": "JFK", "day": "2013-01-31", "n": 1}, {"n": 1}),
        ({"route": {"origin": "JFK", "day": "2013-01-31"}, "n": 1}, {"n": 1}),
        ({"origin": "JFK", "n": 1}, {"n": 1, "origin, day": {"origin": "JFK"}}),
        ({"route": {"origin": "LGA"}, "n": 1}, {"n": 1, "route": {"origin": "LGA"}}),
    ],
)
def test_an_output_begins_with_its_key(body: dict[str, Any], left: dict[str, Any]) -> None:
    assert _output_row(body, {"origin": "JFK", "day": "2013-01-31"}) == left


WITH_MAP = StoreSpec(
    "m",
    key_serde="utf8",
    value_serde={"struct": [["m", {"map": ["utf8", {"array": "decimal(5,2)"}]}]]},
)


@pytest.mark.parametrize(
    ("field", "value", "shown_as"),
    [
        ("least", Decimal("1.5"), "1.50"),
        ("least", Decimal("1.505"), "Decimal('1.505'), which is no decimal(5,2)"),
        ("least", 1.5, "1.50"),
        ("least", "1.50", "which is no decimal(5,2)"),
        ("at", dt.datetime(2013, 1, 31), "which is no timestamp"),  # noqa: DTZ001 - the point
        ("at", "2013-01-31T12:00:00.000Z", "which is no timestamp"),
    ],
)
def test_what_a_recompute_gives_is_as_the_store_would_keep_it(
    field: str, value: Any, shown_as: str
) -> None:
    (expected,) = expected_output({("JFK", None): {field: value}}, ROUTES).values()
    assert expected[field].endswith(shown_as)


def test_maps_are_compared_without_an_order() -> None:
    topology = Topology("tiny", 1, (WITH_MAP,))
    kept: Rows = {("k", None): {"m": [("a", [Decimal("1.50")]), ("b", None)]}}
    there = Actual({"m": Entries(kept)}, {}, None, {})
    given: list[tuple[Any, bool]] = [
        ([("b", None), ("a", [Decimal("1.5")])], True),
        ({"b": None, "a": [Decimal("1.5")]}, True),
        ([("a", None), ("b", [Decimal("1.5")])], False),
        ([("a", [Decimal("1.5")])], False),
        (7, False),
        (None, False),
    ]
    for value, same in given:
        expected = {"stores": {"m": [{"key": "k", "m": value}]}, "dropped": {}, "dead_letters": []}
        store, _ = assess(topology, 0, expected, there)
        assert store.clean is same, value


def test_equal_sides_are_clean() -> None:
    assert differing(EXPECTED) == {}


def test_expired_windows_of_the_recompute_are_not_missing() -> None:
    expected = deepcopy(EXPECTED)
    expected["stores"]["hours"].append({"key": b"k", "start": 16 * HOUR, "timestamp": 0, "n": 1})
    assert differing(expected) == {}


def test_what_is_written_again_later_is_not_compared() -> None:
    """After going back in time outputs and letters are ahead of the stores."""
    past = replace(actual(), outputs={}, letters=None)
    assert differing(EXPECTED, past) == {}
    past.stores["counts"].rows.popitem()
    assert differing(EXPECTED, past).keys() == {"store counts"}


def test_outputs_of_python_are_not_compared_and_it_is_said() -> None:
    """They begin with no key, and say arrays and times in another way than their stores."""
    struct = {"struct": [["k", "utf8"], ["items", "utf8"], ["at", "int64"]]}
    fold = StoreSpec("s", "timestamped-key-value", value_serde=struct, state="value struct<…>")
    topology = replace(
        TOPOLOGY,
        stores=(*TOPOLOGY.stores, fold),
        outputs=(*TOPOLOGY.outputs, OutputSpec("s-out", "s")),
    )
    told, (note,) = comparable(topology)
    assert [output.topic for output in told] == ["counts-out"]
    assert "['s-out'] were not compared" in note
    assert comparable(TOPOLOGY) == ([*TOPOLOGY.outputs], [])


def test_how_far_stores_are_behind_their_outputs() -> None:
    """The task that is furthest behind says it."""
    back = Marker(
        positions=Positions({("src", 0): 3, ("src", 1): 5}),
        published={"positions": {"src": {"0": 10}}},
    )
    level = Marker(positions=back.positions, published={"positions": back.positions.to_json()})
    assert Standing((level, back), {}, {}).behind_outputs == 7
    assert Standing((level, level), {}, {}).behind_outputs == 0


def test_an_entry_that_is_missing() -> None:
    expected = deepcopy(EXPECTED)
    expected["stores"]["counts"].append({"key": "c", "timestamp": 1, "value": 1})
    found = differing(expected)
    assert set(found) == {"store counts", "output counts-out"}
    assert (found["store counts"].missing, found["store counts"].unexpected) == (1, 0)
    assert "missing 'c'" in found["store counts"].examples[0]


def test_an_entry_that_should_not_be_there() -> None:
    expected = deepcopy(EXPECTED)
    expected["stores"]["counts"].pop()
    found = differing(expected)["store counts"]
    assert (found.missing, found.unexpected, found.different) == (0, 1, 0)


def test_a_wrong_value_names_the_field() -> None:
    expected = deepcopy(EXPECTED)
    expected["stores"]["hours"][0]["n"] = 4
    found = differing(expected)["store hours"]
    assert found.different == 1
    assert "1970-01-02T06:00:00+00:00: n: expected 4, is None" in found.examples[0]


def test_bytes_that_differ_show_in_the_digest_alone() -> None:
    found = differing(EXPECTED | {"digests": {"counts": "12/2"}})
    assert set(found) == {"store counts"}


def test_a_doubled_output() -> None:
    there = actual()
    there.outputs["counts-out"].doubled.append("'a' at counts-out/0 offset 3: count from 2 to 2")
    assert differing(EXPECTED, there)["output counts-out"].doubled == 1


def test_late_counts_and_dead_letters() -> None:
    expected = EXPECTED | {"dropped": {"late:hours": 4}, "dead_letters": []}
    found = differing(expected)
    assert set(found) == {"dropped", "dead letters"}
    assert "expected 4, is 3" in found["dropped"].examples[0]
    twice = actual()
    letters = {("src", 0, 7, "undecodable"): 2}
    assert differing(EXPECTED, Actual(twice.stores, twice.outputs, letters, twice.dropped))


def test_ten_examples_of_each_sort() -> None:
    found = compare("store", "s", dict.fromkeys(range(20), 1), dict.fromkeys(range(15, 40), 2))
    assert (found.missing, found.unexpected, found.different) == (15, 20, 5)
    assert len(found.examples) == 10 + 10 + 5


def test_frames_become_plain_rows() -> None:
    frame = pd.DataFrame({"key": ["a", "b"], "n": pd.array([1, None], "Int64"), "x": [1.5, None]})
    assert rows_of(frame) == [{"key": "a", "n": 1, "x": 1.5}, {"key": "b", "n": None, "x": None}]


def test_columns_of_arrays_become_lists() -> None:
    frame = pd.DataFrame({"xs": [np.array([1, 2]), np.array([3]), None]})
    assert rows_of(frame) == [{"xs": [1, 2]}, {"xs": [3]}, {"xs": None}]
    deep = np.array([np.array([1.5, np.nan]), None], dtype=object)
    assert rows_of([{"xs": deep, "n": np.int64(1)}]) == [{"xs": [[1.5, None], None], "n": 1}]


def test_report_as_json_and_text() -> None:
    found = assess(TOPOLOGY, 40 * HOUR, EXPECTED | {"dropped": {}}, actual())
    report = AuditReport("tiny", {"src": {"0": 8}}, 40 * HOUR, 8, tuple(found), ("a note",))
    body = json.loads(json.dumps(report.to_json()))
    assert (body["clean"], body["records"], len(body["comparisons"])) == (False, 8, 5)
    console = Console(width=100, record=True, quiet=False)
    with console.capture() as shown:
        report.print(console)
    for words in ("digest of the store      11/2", "unexpected 'late:hours': 3", "DIFFERENT"):
        assert words in shown.get()


def test_a_report_counts_and_names_all_that_differs() -> None:
    wrong = EXPECTED | {"dropped": {}, "digests": {"counts": "12/2"}}
    report = AuditReport("tiny", {}, 0, 8, tuple(assess(TOPOLOGY, 40 * HOUR, wrong, actual())))
    assert report.counts == {
        "compared": 2 + 1 + 2 + 0 + 1,
        "missing": 0,
        "unexpected": 1,
        "different": 0,
        "doubled": 0,
    }
    assert report.differences == (
        "store counts: digest 11/2, not 12/2",
        "dropped: unexpected 'late:hours': 3",
    )
    body = report.to_json()
    assert body["counts"] == report.counts
    assert body["differences"] == list(report.differences)
    clean = AuditReport("tiny", {}, 0, 8, tuple(assess(TOPOLOGY, 40 * HOUR, EXPECTED, actual())))
    assert (clean.clean, clean.differences) == (True, ())


@pytest.mark.parametrize("path", [*sorted(JOBS.glob("*_audit.py")), JOBS / "_recompute.py"])
def test_recomputes_use_nothing_of_state_lib(path: Path) -> None:
    allowed = {"jobs._recompute"}
    for node in ast.walk(ast.parse(path.read_text())):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or "."]
        for name in names:
            root = name.split(".")[0]
            assert root not in {"state_lib", "holdfast_airflow"}
            assert root != "jobs" or name in allowed
