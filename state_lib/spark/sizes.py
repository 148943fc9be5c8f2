"""How large the records are that a row leads to: its changelog's, and those of its outputs.

Numbers and times have a bound; keys, texts and what is made of others do not. Those that `last`
keeps are all of one record, so a row alone decides whether what it would store fits. Those that
`min` and `max` keep may each be of another one: then each has its share of what a topic takes.
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
_NAMED = 4
"""By how much of the text of its kind a byte may grow: an element has six bytes at least."""
_DIGITS = 16
"""What a decimal takes beyond that, as JSON."""
_LENGTH = 4
_Group = list[tuple[Column, Kind]]


def too_large(verb: Kept, key: Column, index: int, limit: int) -> Column:
    """The size (bytes) of the largest record that a row leads to if it is beyond ``limit``.

    Null if it fits. JSON is made only of what is large.
    """
    groups = _groups(verb, index)
    if not groups and not _is_unbounded(verb.key_serde):
        return F.lit(None).cast("bigint")
    fixed, whole = _fixed(verb), F.octet_length(key)
    plain = whole + _most([_sum_of_sizes(group) for group in groups])
    size = plain + fixed
    if verb.outputs:
        shown, rest = _shown_key(verb.key_serde, key), groups
        if len(groups) == 1:
            shown, rest = [*shown, *_shown(groups[0])], []
        size = whole + _length(shown) + _most([_length(_shown(group)) for group in rest]) + fixed
    possible = plain.cast("bigint") * _worst(groups) + fixed > limit
    return F.when(possible, F.when(size > limit, size.cast("bigint")))


def _worst(groups: list[_Group]) -> int:
    """What a byte takes at most: each element of an array comes with the names of its fields."""
    nested = [kind for group in groups for _, kind in group if isinstance(kind, dict)]
    return _WORST + sum(_NAMED * len(str(kind)) for kind in nested)


def _groups(verb: Kept, index: int) -> list[_Group]:
    """Values without a bound: those of one record together."""
    last: _Group = []
    groups: list[_Group] = []
    for number, field in enumerate(verb.fields.values()):
        if field.op != "count" and _is_unbounded(field.type):
            value = (F.col(f"__hf_in{index}_{number}"), field.type)
            if field.op == "last":
                last.append(value)
            else:
                groups.append([value])
    return [last, *groups] if last else groups


def _most(sizes: list[Column]) -> Column:
    """What they take if the others are as large as the largest of them."""
    if not sizes:
        return F.lit(0)
    return sizes[0] if len(sizes) == 1 else F.greatest(*sizes) * F.lit(len(sizes))


def _sum_of_sizes(group: _Group) -> Column:
    sizes = [F.coalesce(_size(kind, value), F.lit(0)) for value, kind in group]
    return reduce(add, sizes)


def _length(shown: list[Column]) -> Column:
    """Of the JSON of all of these."""
    columns = [column.alias(f"c{i}") for i, column in enumerate(shown)]
    return F.octet_length(F.to_json(F.struct(*columns)))


def _is_unbounded(kind: Kind) -> bool:
    if isinstance(kind, dict) and "struct" in kind:
        return any(_is_unbounded(of) for _, of in kind["struct"])
    return not isinstance(kind_from(kind), Fixed)


def _shown_key(serde: Kind, key: Column) -> list[Column]:
    """What is as long as the JSON of a key, or longer."""
    if isinstance(serde, dict):  # texts escaped, bytes as digits: both of all of it
        return [key.cast("string"), F.hex(key)]
    return [key.cast("string") if serde == "utf8" else F.hex(key)]


def _shown(group: _Group) -> list[Column]:
    """What is as long as the JSON of values, or longer."""
    shown: list[Column] = []
    for value, kind in group:
        if kind == "utf8":
            shown.append(value)
        elif kind == "bytes":
            shown.append(F.hex(value))
        else:  # Spark's JSON has bytes in base64, and decimals without quotes
            shown += [value, value]
    return shown


def _size(kind: Kind, value: Column) -> Column:
    """Bytes of a value within a packed struct, without its length; null for a null, or too many."""
    match kind:
        case str():
            return F.octet_length(value)
        case {"struct": pairs}:
            return _size_of_row(pairs, [value.getField(name) for name, _ in pairs])
        case {"array": of}:
            return _size_of_rows(value, lambda row: _size_of_row([(ELEMENT, of)], [row]))
        case {"map": [key, of]}:
            entry: list[tuple[str, Kind]] = [(KEY, key), (VALUE, of)]
            return _size_of_rows(
                F.map_entries(value),
                lambda row: _size_of_row(entry, [row.getField(name) for name, _ in entry]),
            )
    raise TypeError(f"no kind: {kind!r}")


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
