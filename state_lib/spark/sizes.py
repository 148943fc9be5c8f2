"""How large the records are that a row leads to: its changelog's, and those of its outputs.

Numbers and times have a bound; keys, texts and what is made of others do not. Those that `last`
keeps are all of one record, so a row alone decides whether what it would store fits. Those that
`min` and `max` keep may each be of another one: then each has its share of what a topic takes.
"""

from __future__ import annotations

from functools import reduce
from operator import add

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from state_lib.declaration import WINDOW_FIELDS, Kept
from state_lib.serdes.kinds import Kind, columns_of
from state_lib.spark.measures import SHOWN, STORED, Record, growth

_WINDOW = 12
"""Bytes of a window's start and sequence number in a record's key."""
_KEY = 9
"""What a byte of a key takes at most: once as it is, in JSON escaped and as digits."""
_Group = list[tuple[Column, Kind]]


def too_large(verb: Kept, key: Column, index: int, limit: int) -> Column:
    """The size (bytes) of the largest record that a row leads to if it is beyond ``limit``.

    Null if it fits. It is never less than the record, and what JSON takes is looked at only in
    what is large.
    """
    groups = _groups(verb, index)
    if not groups and not growth(verb.key_serde):
        return F.lit(None).cast("bigint")
    whole = F.octet_length(key).cast("bigint")
    stored, stored_fixed = whole + _most(STORED, groups), STORED.fixed(verb.store.value_serde)
    if not verb.outputs:
        size = stored + (stored_fixed + _WINDOW)
        return F.when(size > limit, size)
    shown, shown_fixed = whole + _shown_key(verb, key) + _most(SHOWN, groups), _shown_fixed(verb)
    size = F.greatest(stored + stored_fixed, shown + shown_fixed) + _WINDOW
    worst = max(_KEY, *(growth(field.type) for field in verb.fields.values()))
    possible = stored * worst + (max(stored_fixed, shown_fixed) + _WINDOW) > limit
    return F.when(possible, F.when(size > limit, size))


def _groups(verb: Kept, index: int) -> list[_Group]:
    """Values without a bound: those of one record together."""
    last: _Group = []
    groups: list[_Group] = []
    for number, field in enumerate(verb.fields.values()):
        if field.op != "count" and growth(field.type):
            value = (F.col(f"__hf_in{index}_{number}"), field.type)
            if field.op == "last":
                last.append(value)
            else:
                groups.append([value])
    return [last, *groups] if last else groups


def _most(record: Record, groups: list[_Group]) -> Column:
    """What they take if the others are as large as the largest of them."""
    sizes = [reduce(add, [record.rest(kind, value) for value, kind in group]) for group in groups]
    if not sizes:
        return F.lit(0)
    return sizes[0] if len(sizes) == 1 else F.greatest(*sizes) * F.lit(len(sizes))


def _shown_key(verb: Kept, key: Column) -> Column:
    """What texts and bytes of a key take as JSON, or more: all of it is looked at as such."""
    serde = verb.key_serde
    kinds = [kind for _, kind in columns_of(serde)] or [serde]
    texts = SHOWN.text(key.cast("string")) if "utf8" in kinds else F.lit(0)
    return texts + SHOWN.data(key) if "bytes" in kinds else texts


def _shown_fixed(verb: Kept) -> int:
    """What all values of an output take."""
    key: list[tuple[str, Kind]] = columns_of(verb.key_serde)
    if verb.key_name or not key:
        key = [(verb.key_name, verb.key_serde)]
    windows: list[tuple[str, Kind]] = [(name, "int64") for name in WINDOW_FIELDS]
    fields = [(name, field.type) for name, field in verb.fields.items()]
    return SHOWN.fixed({"struct": [*key, *windows, *fields]})
