from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state_lib.errors import SerdeError
from state_lib.serdes import Bytes, Float64, Int64, Json, Utf8

CASES: list[tuple[Any, Any]] = [
    (Bytes(), st.binary(max_size=12)),
    (Utf8(), st.text(max_size=12)),
    (Int64(), st.integers(-(2**63), 2**63 - 1)),
    (Float64(), st.floats(allow_nan=False)),
    (Json(), st.integers(-5, 5).map(lambda n: json.dumps({"n": n}))),
]
IDS = [serde.describe() for serde, _ in CASES]


@pytest.mark.parametrize(("serde", "values"), CASES, ids=IDS)
@settings(deadline=None)
@given(data=st.data())
def test_columns_and_single_values_agree(serde: Any, values: Any, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.one_of(st.none(), values), max_size=12))
    cut = data.draw(st.integers(0, 4))
    array = pa.array(rows, serde.arrow_type).slice(cut)
    encoded = serde.encode_arrow(array)
    one = Utf8() if isinstance(serde, Json) else serde
    assert encoded.type == pa.binary()
    assert encoded.to_pylist() == [None if r is None else one.serialize(r) for r in rows[cut:]]
    assert [None if e is None else one.deserialize(e) for e in encoded.to_pylist()] == rows[cut:]
    decoded = serde.decode_arrow(encoded.slice(1))
    decoded.validate(full=True)
    assert decoded.type == serde.arrow_type
    assert decoded.to_pylist() == rows[cut:][1:]


@pytest.mark.parametrize(("serde", "values"), CASES, ids=IDS)
@pytest.mark.parametrize("rows", [[], [None, None]])
def test_empty_and_all_null_columns(serde: Any, values: Any, rows: list[None]) -> None:  # noqa: ARG001
    encoded = serde.encode_arrow(pa.array(rows, serde.arrow_type))
    assert encoded.to_pylist() == rows
    assert serde.decode_arrow(encoded).to_pylist() == rows
    assert serde.encode_arrow(pa.nulls(len(rows))).to_pylist() == rows
    assert serde.encode_arrow(pa.chunked_array([], serde.arrow_type)).to_pylist() == []


def test_numbers_are_big_endian_as_kafkas() -> None:
    assert Int64().serialize(-2) == b"\xff" * 7 + b"\xfe"
    assert Float64().serialize(1.0) == bytes.fromhex("3ff0000000000000")
    assert math.isnan(Float64().deserialize(Float64().serialize(math.nan)))


def test_nulls_whose_slots_hold_bytes() -> None:
    offsets = pa.py_buffer(bytes.fromhex("000000000800000010000000"))
    data = pa.py_buffer(b"garbage!" + Int64().serialize(7))
    array: Any = pa.Array.from_buffers(pa.binary(), 2, [pa.py_buffer(b"\x02"), offsets, data])
    assert Int64().decode_arrow(array).to_pylist() == [None, 7]


def test_bytes_of_another_class_are_plain_ones() -> None:
    made = Bytes().serialize(np.bytes_(b"\0\xff"))
    assert (type(made), made) == (bytes, b"\0\xff")


def test_json_is_canonical() -> None:
    assert Json().serialize({"b": 1, "a": [None, "é"]}) == '{"a":[null,"é"],"b":1}'.encode()
    assert Json().deserialize(b'{"a": 1.5}') == {"a": 1.5}


@pytest.mark.parametrize(
    ("serde", "value"),
    [
        (Bytes(), "text"),
        (Utf8(), b"bytes"),
        (Utf8(), "\ud800"),
        (Int64(), 1.5),
        (Int64(), True),
        (Int64(), 2**63),
        (Float64(), "1"),
        (Json(), {1, 2}),
    ],
)
def test_a_wrong_value_is_named(serde: Any, value: Any) -> None:
    with pytest.raises(SerdeError) as caught:
        serde.serialize(value)
    assert caught.value.details == {"serde": serde.describe(), "seen": repr(value)}


@pytest.mark.parametrize(
    ("serde", "data"),
    [(Utf8(), b"\xff"), (Int64(), bytes(7)), (Float64(), bytes(9)), (Json(), b"{")],
)
def test_wrong_bytes_are_named(serde: Any, data: bytes) -> None:
    with pytest.raises(SerdeError) as caught:
        serde.deserialize(data)
    assert caught.value.details["seen"] == repr(data)


@pytest.mark.parametrize(("serde", "data"), [(Utf8(), b"\xff"), (Int64(), bytes(7))])
def test_wrong_bytes_in_a_column(serde: Any, data: bytes) -> None:
    good = serde.serialize("a" if isinstance(serde, Utf8) else 1)
    with pytest.raises(SerdeError, match=repr(serde.describe())):
        serde.decode_arrow(pa.array([None, good, data], pa.binary()))


def test_columns_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SerdeError, match="int64"):
        Int64().encode_arrow(pa.array(["x"]))
    with pytest.raises(SerdeError, match="json"):
        Json().encode_arrow(pa.array(['{"ok": 1}', "not json"]))
