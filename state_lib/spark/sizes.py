"""How large the records are that a row leads to: its changelog's, and those of its outputs.

Only keys and texts have no bound. The texts of a stored value are all of one record (the last), so
a row alone decides whether what it would store fits.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from state_lib.declaration import Kept

UNBOUNDED = 2**31 - 1
_NUMBER = 32
"""What a number or a time takes at most, as JSON too."""
_WORST = 8
"""What a byte of a text takes at most: once in a record's key, escaped in its JSON."""


def too_large(verb: Kept, key: Column, index: int, limit: int) -> Column:
    """The size (bytes) of the largest record that a row leads to if it is beyond ``limit``.

    Null if it fits. JSON is made only of what is large.
    """
    texts = [
        F.col(f"__hf_in{index}_{number}")
        for number, field in enumerate(verb.fields.values())
        if field.type == "utf8"
    ]
    none = F.lit(None).cast("bigint")
    if not texts and verb.key_serde == "int64":
        return none
    fixed = _fixed(verb)
    plain = F.octet_length(key)
    for text in texts:
        plain = plain + F.coalesce(F.octet_length(text), F.lit(0))
    size = plain + fixed
    if verb.outputs:
        shown = key.cast("string") if verb.key_serde == "utf8" else F.hex(key)
        columns = [c.alias(f"c{i}") for i, c in enumerate([shown, *texts])]
        size = F.octet_length(key) + F.octet_length(F.to_json(F.struct(*columns))) + fixed
    possible = plain.cast("bigint") * _WORST + fixed > limit
    return F.when(possible, F.when(size > limit, size.cast("bigint")))


def _fixed(verb: Kept) -> int:
    names = [verb.key_name, *verb.fields, "window_start", "window_end"]
    return 4 * _NUMBER + sum(len(name.encode()) + _NUMBER for name in names)
