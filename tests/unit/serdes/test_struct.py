from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state_lib.errors import SerdeError
from state_lib.serdes import Struct

VALUES: dict[str, Any] = {
    "int64": st.integers(-(2**63), 2**63 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "utf8": st.text(max_size=6),
    "bytes": st.binary(max_size=6),
}


@st.composite
def columns(draw: st.DrawFn, kinds: tuple[str, ...]) -> tuple[Struct, list[Any]]:
    fields = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=10))
    names = {f"f{i}": kind for i, kind in enumerate(fields)}
    row = st.fixed_dictionaries({n: st.one_of(st.none(), VALUES[k]) for n, k in names.items()})
    return Struct(**names), draw(st.lists(st.one_of(st.none(), row), max_size=8))


def check(serde: Struct, rows: list[Any], cut: int) -> None:
    array = pa.array(rows, serde.arrow_type).slice(cut)
    encoded = serde.encode_arrow(array)
    single = [None if row is None else serde.serialize(row) for row in rows[cut:]]
    assert encoded.to_pylist() == single
    decoded = serde.decode_arrow(encoded.slice(1))
    decoded.validate(full=True)
    assert decoded.type == serde.arrow_type
    assert decoded.to_pylist() == rows[cut:][1:]
    assert [None if e is None else serde.deserialize(e) for e in single] == rows[cut:]


@settings(deadline=None)
@given(columns(("int64", "int32", "float64", "bool")), st.integers(0, 3))
def test_fixed_width(case: tuple[Struct, list[Any]], cut: int) -> None:
    check(*case, cut)


@settings(deadline=None)
@given(columns(tuple(VALUES)), st.integers(0, 3))
def test_variable_width(case: tuple[Struct, list[Any]], cut: int) -> None:
    check(*case, cut)


def test_layout_is_the_documented_one() -> None:
    serde = Struct(name="utf8", n="int32", ok="bool", gone="int64")
    packed = serde.serialize({"name": "ab", "n": -1, "ok": True, "gone": None})
    head = b"\x08" + b"\xff\xff\xff\xff" + b"\x01" + bytes(8)
    assert packed == head + b"\0\0\0\2ab"


def test_the_ninth_field_has_its_bit_in_the_second_byte() -> None:
    serde = Struct(**{f"f{i}": "bool" for i in range(9)})
    packed = serde.serialize({f"f{i}": None if i == 8 else False for i in range(9)})
    assert packed[:2] == b"\x00\x01"


def test_null_slots_do_not_reach_the_bytes() -> None:
    child = pa.Array.from_buffers(
        pa.int64(), 2, [pa.py_buffer(b"\x01"), pa.py_buffer((5).to_bytes(8, "little") * 2)]
    )
    column = pa.StructArray.from_arrays([child], ["n"])
    got = Struct(n="int64").encode_arrow(column).to_pylist()
    assert got == [b"\x00" + (5).to_bytes(8, "big"), b"\x01" + bytes(8)]


def test_a_null_row_with_live_children_stays_null() -> None:
    column = pa.StructArray.from_arrays(
        [pa.array(["abc", "d"])], ["s"], mask=pa.array([True, False])
    )
    encoded = Struct(s="utf8").encode_arrow(column)
    assert encoded.to_pylist() == [None, b"\x00\0\0\0\1d"]
    assert Struct(s="utf8").decode_arrow(encoded).to_pylist() == [None, {"s": "d"}]


@pytest.mark.parametrize("rows", [[], [None, None]])
@pytest.mark.parametrize("serde", [Struct(a="int64"), Struct(a="utf8", b="bool")], ids=str)
def test_empty_and_all_null(serde: Struct, rows: list[None]) -> None:
    encoded = serde.encode_arrow(pa.array(rows, serde.arrow_type))
    assert encoded.to_pylist() == rows
    assert serde.decode_arrow(encoded).to_pylist() == rows


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"a": 1}, "instead of"),
        ({"a": 1, "b": "x", "c": 2}, "instead of"),
        ({"a": "1", "b": "x"}, "not int64"),
        ({"a": True, "b": "x"}, "not int64"),
        ({"a": 2**63, "b": "x"}, "int too large|argument out of range|format requires"),
        ({"a": 1, "b": "\ud800"}, "surrogate"),
        ("row", r"not a mapping with \['a', 'b'\]"),
        ([("a", 1)], "not a mapping"),
    ],
)
def test_wrong_values(value: Any, why: str) -> None:
    with pytest.raises(SerdeError, match=why):
        Struct(a="int64", b="utf8").serialize(value)


GOOD = Struct(a="int64", b="utf8").serialize({"a": 1, "b": "xy"})
BAD = {
    "too short for the fixed part": GOOD[:8],
    "cut inside the text": GOOD[:-1],
    "too long": GOOD + b"!",
    "a length beyond the end": GOOD[:9] + b"\x7f" + GOOD[10:],
    "no room for the length": GOOD[:11],
    "not UTF-8": GOOD[:-2] + b"\xff\xff",
    "a bit of no field": b"\x04" + GOOD[1:],
    "a null with a length": b"\x02" + GOOD[1:],
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_wrong_bytes_are_refused_alone_and_in_columns(data: bytes) -> None:
    serde = Struct(a="int64", b="utf8")
    with pytest.raises(SerdeError) as caught:
        serde.deserialize(data)
    assert caught.value.details["serde"] == serde.describe()
    with pytest.raises(SerdeError):
        serde.decode_arrow(pa.array([GOOD, None, data], pa.binary()))


def test_wrong_length_of_a_fixed_row() -> None:
    serde = Struct(a="int64")
    with pytest.raises(SerdeError, match="1 bytes too many"):
        serde.decode_arrow(pa.array([bytes(9), bytes(10)], pa.binary()))
