"""Kinds and values of them, drawn by hypothesis."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from state_lib.protocol.positions import Positions
from state_lib.serdes.kinds import Kind

NUMBERS: dict[str, Any] = {
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(),
    "bool": st.booleans(),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(dt.UTC)),
    "timestamp_ntz": st.datetimes(),
    "decimal(38,38)": st.integers(1 - 10**38, 10**38 - 1).map(
        lambda n: Decimal((n < 0, _of(n), -38))
    ),
    "decimal(5,0)": st.integers(-99_999, 99_999).map(Decimal),
}
"""All that take as many bytes whatever they are."""
OTHERS: dict[str, Any] = {
    "utf8": st.text(max_size=6) | st.sampled_from(["\0" * 9, '"\\' * 5, "é€😀\u2028\x7f"]),
    "bytes": st.binary(max_size=6),
}
FLAT = NUMBERS | OTHERS
_NAMES = ["a", "b c", 'q"q', "ü", "n" * 30]


def _of(number: int) -> tuple[int, ...]:
    return tuple(map(int, str(abs(number))))


def kinds(flat: dict[str, Any], *, rows: bool = True) -> st.SearchStrategy[Kind]:
    """Kinds made of these, structs of structs and, unless ``rows`` is false, arrays and maps."""

    def of(parts: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
        names = st.lists(st.sampled_from(_NAMES), min_size=1, max_size=3, unique=True)
        structs = names.flatmap(
            lambda n: st.tuples(*(parts for _ in n)).map(
                lambda kinds: {"struct": [list(p) for p in zip(n, kinds, strict=True)]}
            )
        )
        if not rows:
            return structs
        by = st.sampled_from(sorted(flat.keys() - {"float64"}))
        maps = st.tuples(by, parts).map(lambda pair: {"map": list(pair)})
        return structs | parts.map(lambda kind: {"array": kind}) | maps

    return st.recursive(st.sampled_from(sorted(flat)), of, max_leaves=5)


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a kind, and nulls; maps as pairs."""
    return st.none() | _values(kind)


def _values(kind: Any) -> st.SearchStrategy[Any]:
    match kind:
        case {"struct": pairs}:
            return st.fixed_dictionaries({name: values(of) for name, of in pairs})
        case {"array": of}:
            return st.lists(values(of), max_size=4)
        case {"map": [key, of]}:
            pairs = st.tuples(FLAT[key], values(of))
            return st.lists(pairs, max_size=4, unique_by=lambda pair: pair[0])
    flat: st.SearchStrategy[Any] = FLAT[kind]
    return flat


def places() -> st.SearchStrategy[Positions]:
    """Positions in sources, or greatest event times."""
    partitions = st.tuples(st.text("ab-.", min_size=1), st.integers(0, 99))
    return st.dictionaries(partitions, st.integers(0, 1 << 60)).map(Positions)
