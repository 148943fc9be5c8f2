"""How large a value is at most, in each of the two records that have it.

That of a changelog has packed structs (`state_lib.serdes.layout`, `state_lib.serdes.nested`), that
of an output JSON (`state_lib.serdes.shown`). Each is what every value of a kind takes, `fixed`, and
what its texts, bytes and elements come to, `rest`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from math import prod
from operator import add

import numpy as np
import orjson
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from state_lib.serdes.kinds import Fixed, Kind, digits_of, kind_from
from state_lib.serdes.nested import KEY, VALUE

_LENGTH = 4
"""Bytes of a length and of a count."""
_NULL = 4
"""``null``, which is longer than two quotes or brackets."""
_PLAIN = {
    "int64": 20, "int32": 11, "float64": 25, "bool": 5,
    "date": 12, "timestamp": 29, "timestamp_ntz": 28,
}  # fmt: skip
"""Bytes of the longest as JSON."""

_GROWTH = {"utf8": 6, "bytes": 2}


@dataclass(frozen=True)
class Record:
    """One of the two.

    Attributes:
        flat: what a value that is no struct takes, of a text or an array without what is in it.
        whole: what a struct takes around the values of these names.
        element, entry: what each of an array or of a map takes around its values.
        text, data: bytes of a text and of bytes that are no null, beyond what all of them take.
    """

    flat: Callable[[Kind], int]
    whole: Callable[[list[str]], int]
    element: int
    entry: int
    text: Callable[[Column], Column]
    data: Callable[[Column], Column]

    def fixed(self, kind: Kind) -> int:
        """What every value of a kind takes, or a null."""
        match kind:
            case str():
                return self.flat(kind)
            case {"struct": pairs}:
                return self.whole([n for n, _ in pairs]) + sum(self.fixed(of) for _, of in pairs)
        return self.flat(kind)

    def row(self, kind: Kind) -> int:
        """What each element of an array takes, or each entry of a map, as long as all do."""
        match kind:
            case {"array": of}:
                return self.element + self.fixed(of)
            case {"map": [key, of]}:
                return self.entry + self.fixed(key) + self.fixed(of)
        raise TypeError(f"no rows in {kind!r}")

    def rest(self, kind: Kind, value: Column) -> Column:
        """What a value takes beyond `fixed`; no null."""
        if growth(kind) == 0:
            return F.lit(0).cast("bigint")
        match kind:
            case str():
                if kind == "utf8":
                    return self.text(F.coalesce(value, F.lit(""))).cast("bigint")
                return F.coalesce(self.data(value), F.lit(0)).cast("bigint")
            case {"struct": pairs}:
                parts = [self.rest(of, value.getField(name)) for name, of in pairs if growth(of)]
                return reduce(add, parts)
            case {"array": of}:
                return self._rows(kind, [of], value, lambda row: self.rest(of, row))
            case {"map": [key, of]}:
                return self._rows(
                    kind,
                    [key, of],
                    F.map_entries(value),
                    lambda row: (
                        self.rest(key, row.getField(KEY)) + self.rest(of, row.getField(VALUE))
                    ),
                )
        raise TypeError(f"no kind: {kind!r}")

    def _rows(
        self, kind: Kind, parts: list[Kind], rows: Column, rest: Callable[[Column], Column]
    ) -> Column:
        each = F.lit(self.row(kind))
        if any(map(growth, parts)):
            start = F.lit(0).cast("bigint")
            found = F.aggregate(rows, start, lambda total, row: total + each + rest(row))
        else:
            found = F.array_size(rows).cast("bigint") * each
        return F.coalesce(found, F.lit(0).cast("bigint"))


def growth(kind: Kind) -> int:
    """How many bytes of JSON a byte of a changelog may become, of `Record.rest`; 0: there is none.

    One of a text becomes six where it is escaped, and what an element takes has its names.
    """
    match kind:
        case str():
            return _GROWTH.get(kind, 0)
        case {"struct": pairs}:
            return max(growth(of) for _, of in pairs)
        case {"array": of}:
            return max(_growth_of_rows(kind), growth(of))
        case {"map": [key, of]}:
            return max(_growth_of_rows(kind), growth(key), growth(of))
    return 0


def _growth_of_rows(kind: Kind) -> int:
    return -(-SHOWN.row(kind) // STORED.row(kind))


def _stored(kind: Kind) -> int:
    if isinstance(kind, dict):
        return 2 * _LENGTH
    of = kind_from(kind)
    return np.dtype(of.dtype).itemsize * prod(of.shape) if isinstance(of, Fixed) else _LENGTH


def _shown(kind: Kind) -> int:
    digits = digits_of(kind)
    if digits is not None:
        return digits[0] + len('"-0."')
    return _NULL if isinstance(kind, dict) else _PLAIN.get(kind, _NULL)


def _escaped(text: Column) -> Column:
    """Bytes of a text as Spark's JSON has it, which is ours, without quotes."""
    return F.octet_length(F.to_json(F.array(text))) - F.lit(len('[""]'))


STORED = Record(
    flat=_stored,
    whole=lambda names: _LENGTH + (len(names) + 7) // 8,
    element=_LENGTH + 1,
    entry=_LENGTH + 1,
    text=F.octet_length,
    data=F.octet_length,
)
"""That of a changelog."""
SHOWN = Record(
    flat=_shown,
    whole=lambda names: len("{}") + sum(len(orjson.dumps(name)) + len(":,") for name in names),
    element=len(","),
    entry=len('"":,'),
    text=_escaped,
    data=lambda value: F.octet_length(value) * F.lit(2),
)
"""That of an output."""
