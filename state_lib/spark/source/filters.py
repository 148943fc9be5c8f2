"""Which keys filters leave: for those alone a host is asked then, and only the hosts that own them.

Spark judges every filter again, so all that matters here is that no row gets lost.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import EqualNullSafe, EqualTo, Filter, In

from state_lib.errors import SerdeError
from state_lib.serdes import serde_from
from state_lib.spark.source.table import KEY, places_of
from state_lib.specs import StoreSpec

MOST_KEYS, MOST_WINDOWED_KEYS = 1_000, 100
"""More are not asked for one by one; each one of a window store costs scans."""


def keys_left(filters: Iterable[Filter], spec: StoreSpec) -> frozenset[bytes] | None:
    """Serialized keys beside which no row passes all filters; None: any may.

    Floating-point keys are never named: 0.0 equals -0.0, and their bytes differ.
    """
    places = {name: p for name, p in places_of(spec).items() if p.part == KEY}
    kind = serde_from(spec.key_serde).arrow_type
    allowed: dict[str, set[Any]] = {}
    for one in filters:
        name, values = _values(one)
        if name in places:
            allowed[name] = allowed[name] & values if name in allowed else values
    if allowed.keys() != places.keys() or any(_is_float(p.field, kind) for p in places.values()):
        return None
    most = MOST_WINDOWED_KEYS if spec.is_window else MOST_KEYS
    if math.prod(len(values) for values in allowed.values()) > most:
        return None
    rows = itertools.product(*(allowed[name] for name in places))
    if not pa.types.is_struct(kind):
        return _encoded(spec, [row[0] for row in rows if row[0] is not None])
    fields = [place.field for place in places.values()]
    if None in fields:  # the struct is one column, which Spark's filters do not name
        return None
    return _encoded(spec, [dict(zip(fields, row, strict=True)) for row in rows])


def _values(one: Filter) -> tuple[str | None, set[Any]]:
    """The column that a filter fixes, and the values that it leaves."""
    match one:
        case EqualTo(attribute=(name,), value=value) if value is not None:
            return name, {value}
        case EqualNullSafe(attribute=(name,), value=value):
            return name, {value}
        case In(attribute=(name,), value=values):
            return name, {value for value in values if value is not None}
    return None, set()


def _is_float(field: str | None, kind: pa.DataType) -> bool:
    of = kind if field is None else kind.field(field).type
    return bool(pa.types.is_floating(of))


def _encoded(spec: StoreSpec, keys: list[Any]) -> frozenset[bytes] | None:
    """Serialized; None if the serde does not take one: let Spark judge what that means."""
    serde = serde_from(spec.key_serde)
    try:
        return frozenset(serde.encode_arrow(pa.array(keys, serde.arrow_type)).to_pylist())
    except (SerdeError, pa.ArrowInvalid, pa.ArrowTypeError, TypeError, OverflowError):
        return None
