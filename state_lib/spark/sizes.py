"""How large the records are that a row leads to: its changelog's, and those of its outputs.

Numbers and times have a bound; keys, texts and what is made of others do not. Those of a stored
value are all of one record (the last, the least or the greatest), or of few (one for each field
that keeps the least or the greatest).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from state_lib.declaration import Kept
from state_lib.serdes.kinds import Fixed, Kind, digits_of, kind_from
from state_lib.serdes.layout import Layout
from state_lib.serdes.nested import ELEMENT, KEY, VALUE

UNBOUNDED = 2**31 - 1
_NUMBER = 32
"""What a number or a time takes at most, as JSON too."""
_WORST = 8
"""What a byte of a text takes at most: once in a record's key, escaped in its JSON."""
_DIGITS = 16
"""What a decimal takes beyond that, as JSON."""
_LENGTH = 4


def too_large(verb: Kept, key: Column, index: int, limit: int) -> Column:
    """The size (bytes) of the largest record that a row leads to if it is beyond ``limit``.

    Null if it fits. JSON is made only of what is large.
    """
    unbounded = [
        (F.col(f"__hf_in{index}_{number}"), field.type)
        for number, field in enumerate(verb.fields.values())
        if not field.of_rows and field.op != "count" and _is_unbounded(field.type)
    ]
    none = F.lit(None).cast("bigint")
    if not unbounded and not _is_unbounded(verb.key_serde):
        return none
    fixed = _fixed(verb)
    plain = F.octet_length(key)
    for value, kind in unbounded:
        plain = plain + F.coalesce(_size(kind, value), F.lit(0))
    size = plain + fixed
    if verb.outputs:
        shown = [*_shown_key(verb.key_serde, key), *(s for of in unbounded for s in _shown(*of))]
        columns = [c.alias(f"c{i}") for i, c in enumerate(shown)]
        size = F.octet_length(key) + F.octet_length(F.to_json(F.struct(*columns))) + fixed
    possible = plain.cast("bigint") * _WORST + fixed > limit
    return F.when(possible, F.when(size > limit, size.cast("bigint")))


def _is_unbounded(kind: Kind) -> bool:
    if isinstance(kind, dict) and "struct" in kind:
        return any(_is_unbounded(of) for _, of in kind["struct"])
    return not isinstance(kind_from(kind), Fixed)


def _shown_key(serde: Kind, key: Column) -> list[Column]:
    """What is as long as the JSON of a key, or longer."""
    if isinstance(serde, dict):  # texts escaped, bytes as digits: both of all of it
        return [key.cast("string"), F.hex(key)]
    return [key.cast("string") if serde == "utf8" else F.hex(key)]


def _shown(value: Column, kind: Kind) -> list[Column]:
    """What is as long as the JSON of a value, or longer."""
    if kind == "utf8":
        return [value]
    # Spark's JSON has bytes in base64, and decimals without quotes.
    return [F.hex(value)] if kind == "bytes" else [value, value]


def _size(kind: Kind, value: Column) -> Column:
    """Bytes of a value within a packed struct, without its length; null for a null, or too many."""
    match kind:
        case {"struct": pairs}:
            return _size_of_row(pairs, [value.getField(name) for name, _ in pairs])
        case {"array": of}:
            return _size_of_rows(value, lambda row: _size_of_row([(ELEMENT, of)], [row]))
        case {"map": [key, of]}:
            pairs = [(KEY, key), (VALUE, of)]
            return _size_of_rows(
                F.map_entries(value),
                lambda row: _size_of_row(pairs, [row.getField(name) for name, _ in pairs]),
            )
    return F.octet_length(value)


def _size_of_row(pairs: Sequence[tuple[str, Kind]], values: Sequence[Column]) -> Column:
    layout = Layout(pairs)
    sizes = [
        F.coalesce(_size(pairs[i][1], values[i]), F.lit(0)) + F.lit(_LENGTH)
        for i in layout.variable
    ]
    return reduce(add, sizes, F.lit(layout.head_bytes))


def _size_of_rows(rows: Column, size: Callable[[Column], Column]) -> Column:
    def added(total: Column, row: Column) -> Column:
        return total + size(row) + F.lit(_LENGTH)

    return F.aggregate(rows, F.lit(_LENGTH), added)


def _fixed(verb: Kept) -> int:
    names = [*verb.key_names, *verb.fields, "window_start", "window_end"]
    digits = sum(digits_of(field.type) is not None for field in verb.fields.values())
    numbers = 4 * _NUMBER + digits * _DIGITS
    return numbers + sum(len(name.encode()) + _NUMBER for name in names)
