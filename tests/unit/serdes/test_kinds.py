"""Kinds beside numbers and texts: alone, as fields, and within one another."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state_lib.errors import ConfigurationError, SerdeError
from state_lib.serdes import Struct, serde_from
from state_lib.serdes.arrays import shaped
from state_lib.serdes.layout import Layout
from state_lib.serdes.shown import from_json, to_json

MOST = Decimal(10) ** 3 - Decimal("0.01")
FLAT: dict[str, Any] = {
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "bool": st.booleans(),
    "utf8": st.text(max_size=5),
    "bytes": st.binary(max_size=5),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(dt.UTC)),
    "timestamp_ntz": st.datetimes(),
    "decimal(5,2)": st.decimals(-MOST, MOST, places=2),
    "decimal(38,0)": st.integers(1 - 10**38, 10**38 - 1).map(Decimal),
}
SORTED = ["date", "timestamp", "timestamp_ntz", "decimal(5,2)", "decimal(38,0)", "bool"]
NESTED: dict[str, tuple[Any, Any]] = {
    "struct": (
        {"struct": [["a", "int64"], ["b", "utf8"], ["c", "decimal(5,2)"]]},
        st.fixed_dictionaries(
            {n: st.none() | FLAT[k] for n, k in (("a", "int64"), ("b", "utf8"))}
            | {"c": st.none() | FLAT["decimal(5,2)"]}
        ),
    ),
    "numbers": ({"array": "int64"}, st.lists(st.none() | FLAT["int64"], max_size=4)),
    "texts": ({"array": "utf8"}, st.lists(st.none() | FLAT["utf8"], max_size=4)),
    "map": (
        {"map": ["date", "utf8"]},
        st.lists(st.tuples(FLAT["date"], st.none() | FLAT["utf8"]), max_size=3),
    ),
    "deep": (
        {"array": {"struct": [["m", {"map": ["utf8", {"array": "bool"}]}], ["n", "float64"]]}},
        st.lists(
            st.none()
            | st.fixed_dictionaries(
                {
                    "m": st.none()
                    | st.lists(
                        st.tuples(FLAT["utf8"], st.none() | st.lists(st.booleans(), max_size=2)),
                        max_size=2,
                    ),
                    "n": st.none() | FLAT["float64"],
                }
            ),
            max_size=3,
        ),
    ),
}
KINDS = {**{name: (name, values) for name, values in FLAT.items()}, **NESTED}


@pytest.mark.parametrize("name", KINDS)
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_fields_are_alike_alone_and_in_columns(name: str, data: st.DataObject) -> None:
    kind, values = KINDS[name]
    serde = Struct(before="utf8", it=kind, behind="int32")
    row = st.fixed_dictionaries(
        {"before": st.text(max_size=2), "it": st.none() | values, "behind": st.just(7)}
    )
    rows = data.draw(st.lists(st.none() | row, max_size=5))
    cut = data.draw(st.integers(0, 2))
    column = pa.array(rows, serde.arrow_type).slice(cut)
    encoded = serde.encode_arrow(column)
    assert encoded.to_pylist() == [None if r is None else serde.serialize(r) for r in rows[cut:]]
    decoded = serde.decode_arrow(encoded.slice(1))
    decoded.validate(full=True)
    assert decoded.type == serde.arrow_type
    assert decoded.to_pylist() == rows[cut:][1:]
    for one in rows:
        if one is not None:
            assert serde.deserialize(serde.serialize(one)) == one


@pytest.mark.parametrize("name", KINDS)
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_what_is_shown_can_be_read(name: str, data: st.DataObject) -> None:
    kind, values = KINDS[name]
    value = data.draw(values)
    again = from_json(kind, to_json(kind, value))
    if name in ("map", "deep"):  # a key that comes twice is one member of an object
        assert to_json(kind, again) == to_json(kind, value)
    else:
        assert again == value


@pytest.mark.parametrize("kind", SORTED)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_single_ones_sort_by_value(kind: str, data: st.DataObject) -> None:
    serde = serde_from(kind)
    values = data.draw(st.lists(FLAT[kind], min_size=1, max_size=6))
    packed = [serde.serialize(v) for v in values]
    assert [serde.deserialize(p) for p in sorted(packed)] == sorted(values)
    column = pa.array([None, *values], serde.arrow_type)
    assert serde.encode_arrow(column).to_pylist() == [None, *packed]
    decoded = serde.decode_arrow(serde.encode_arrow(column).slice(1))
    assert (decoded.type, decoded.to_pylist()) == (serde.arrow_type, values)


@pytest.mark.parametrize("kind", [*SORTED, {"array": "int64"}], ids=str)
def test_nothing_and_nulls(kind: Any) -> None:
    serde = Struct(it=kind)
    for rows in ([], [None], [{"it": None}, None]):
        encoded = serde.encode_arrow(pa.array(rows, serde.arrow_type))
        assert serde.decode_arrow(encoded).to_pylist() == rows
    if isinstance(kind, str):
        single = serde_from(kind)
        nulls = single.encode_arrow(pa.nulls(2, single.arrow_type))
        assert single.decode_arrow(nulls).to_pylist() == [None, None]


def test_layouts_are_the_documented_ones() -> None:
    day = dt.date(1970, 1, 2)
    assert serde_from("date").serialize(day) == b"\x80\0\0\1"
    moment = dt.datetime(1970, 1, 1, microsecond=1, tzinfo=dt.UTC)
    assert serde_from("timestamp").serialize(moment) == b"\x80" + bytes(6) + b"\1"
    assert serde_from("bool").serialize(True) == b"\1"
    assert serde_from("decimal(5,2)").serialize(Decimal("-0.01")) == b"\x7f" + 15 * b"\xff"
    listed = Struct(it={"array": "int32"}).serialize({"it": [1, None]})
    elements = b"\0" + (1).to_bytes(4, "big") + b"\1" + bytes(4)
    numbers = b"".join(n.to_bytes(4, "big") for n in (2, 5, 5))
    assert listed == b"\0" + (22).to_bytes(4, "big") + numbers + elements


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("date", dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
        ("timestamp", dt.datetime(2020, 1, 1)),  # noqa: DTZ001 - the point
        ("timestamp_ntz", dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
        ("decimal(5,2)", Decimal("1000.00")),
        ("decimal(5,2)", Decimal("0.001")),
        ("decimal(5,2)", Decimal("NaN")),
        ("decimal(5,2)", 1),
        ("bool", 1),
    ],
)
def test_other_values_are_refused(kind: str, value: Any) -> None:
    with pytest.raises(SerdeError):
        serde_from(kind).serialize(value)
    with pytest.raises(SerdeError):
        Struct(it=kind).serialize({"it": value})


GOOD = Struct(it={"array": "utf8"}).serialize({"it": ["ab", None]})
BAD = {
    "no room for the count": GOOD[:5] + b"\0",
    "more elements than bytes": GOOD[:5] + b"\x7f" + GOOD[6:],
    "a length beyond the end": GOOD[:9] + b"\x7f" + GOOD[10:],
    "too short": GOOD[:-1],
    "too long": GOOD + b"!",
    "not UTF-8": GOOD.replace(b"ab", b"\xff\xff"),
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_wrong_bytes_are_refused_alone_and_in_columns(data: bytes) -> None:
    serde = Struct(it={"array": "utf8"})
    with pytest.raises(SerdeError) as caught:
        serde.deserialize(data)
    assert caught.value.details["serde"] == serde.describe(), "not a part of it"
    with pytest.raises(SerdeError):
        serde.decode_arrow(pa.array([GOOD, None, data], pa.binary()))
    with pytest.raises(SerdeError):
        serde_from("date").decode_arrow(pa.array([b"1234", data], pa.binary()))


@pytest.mark.parametrize(
    "kind",
    [
        *("decimal(39,0)", "decimal(5,6)", "decimal(0,0)", {"array": "x"}, {"map": ["utf8"]}, {}),
        *({"map": [{"array": "utf8"}, "utf8"]}, {"struct": []}, {"array": "utf8", "more": 1}),
    ],
    ids=str,
)
def test_unknown_kinds_are_configuration_errors(kind: Any) -> None:
    with pytest.raises(ConfigurationError):
        Struct(it=kind)


def test_prefixes_are_of_the_fields_that_come_first() -> None:
    serde = Struct(name="utf8", n="int64", more="utf8")
    whole = serde.serialize({"name": "ab", "n": 7, "more": "c"})
    for first in ({}, {"n": 7}, {"n": 7, "name": "ab"}, {"more": "c", "n": 7, "name": "ab"}):
        assert whole.startswith(serde.prefix(first))
    assert not whole.startswith(serde.prefix({"n": 7, "name": "a"}))
    for wrong in ({"name": "ab"}, {"n": None}, {"n": "7"}, {"other": 7}):
        with pytest.raises(SerdeError):
            serde.prefix(wrong)


def test_arrays_of_another_shape_are_made_to_fit() -> None:
    entry = pa.field("value", pa.list_(pa.field("item", pa.int32(), nullable=False)))
    given = pa.array(
        [None, [("a", [1, 2])], [], [("b", None), ("c", [])]],
        pa.map_(pa.string(), entry),
    )
    wanted = pa.map_(pa.string(), pa.list_(pa.field("element", pa.int64())))
    for cut in range(4):
        made = shaped(given.slice(cut), wanted)
        made.validate(full=True)
        assert (made.type, made.to_pylist()) == (wanted, given.to_pylist()[cut:])
    rows = pa.array([{"x": {"y": 1}}, None, {"x": None}])
    kind = pa.struct([pa.field("a", pa.struct([pa.field("b", pa.float64())]))])
    assert shaped(rows.slice(1), kind).to_pylist() == [None, {"a": None}]


@pytest.mark.parametrize("digits", [1, 5, 19, 38])
def test_decimals_of_more_digits_than_their_kind_are_refused(digits: int) -> None:
    """Alone, in a column, as a field and in an array; what stands beside them is well."""
    kind = f"decimal({digits},0)"
    single, fields, listed = serde_from(kind), Struct(it=kind), Struct(it={"array": kind})
    most = 10**digits - 1
    element = listed.serialize({"it": [Decimal(most)]})
    for whole in (most, -most):
        raw = (whole + 2**127).to_bytes(16, "big")
        assert single.deserialize(raw) == whole
        assert single.decode_arrow(pa.array([None, raw], pa.binary()))[1].as_py() == whole
        assert fields.decode_arrow(pa.array([b"\0" + raw], pa.binary()))[0].as_py() == {"it": whole}
    for whole in (most + 1, -most - 1, 2**127 - 1, -(2**127)):
        raw = (whole + 2**127).to_bytes(16, "big")
        for serde, data in ((single, raw), (fields, b"\0" + raw), (listed, element[:-16] + raw)):
            with pytest.raises(SerdeError, match="more digits"):
                serde.deserialize(data)
            with pytest.raises(SerdeError, match="more digits"):
                serde.decode_arrow(pa.array([None, data], pa.binary()))
    assert fields.decode_arrow(pa.array([b"\1" + bytes(16)], pa.binary()))[0].as_py() == {
        "it": None
    }


def test_a_layout_is_made_once_at_each_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    made, init = list[Any](), Layout.__init__

    def count(layout: Layout, fields: Any) -> None:
        made.append(fields)
        init(layout, fields)

    monkeypatch.setattr(Layout, "__init__", count)
    described: Any = "int64"
    for _ in range(6):
        described = {"struct": [["it", described]]}
    assert serde_from(described).describe() == described
    assert len(made) == 6
