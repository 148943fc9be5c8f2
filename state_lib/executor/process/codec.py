"""Rows of a state as packed structs, with their expiry if they have a time to live."""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import StructType

from state_lib.executor.process.values import Convert, field_of, fields_of, from_field, to_field
from state_lib.serdes.layout import Layout

EXPIRES = "_expires"
"""The hidden field of entries with a time to live: their expiry (ms)."""


class RowCodec:
    """Packs rows of one state, or keys of a map.

    Args:
        schema: of the rows.
        ttl: whether they expire.

    Raises:
        ConfigurationError: no field, or a name twice.
        TypeError: a type that cannot be kept.
    """

    def __init__(self, schema: StructType, *, ttl: bool = False) -> None:
        self._ttl = ttl
        self._names = [f.name for f in schema.fields]
        self._to: list[Convert] = [to_field(f.dataType) for f in schema.fields]
        self._from = [from_field(f.dataType) for f in schema.fields]
        kinds = [(f.name, field_of(f.dataType)) for f in schema.fields]
        self.pairs = [*([(EXPIRES, "int64")] if ttl else []), *kinds]
        self._layout = Layout(self.pairs)

    @property
    def serde(self) -> dict[str, list[list[str]]]:
        """Its description, as `state_lib.serdes.serde_from` takes it."""
        return {"struct": [list(pair) for pair in self.pairs]}

    def pack(self, row: Any, expires: int | None = None) -> bytes:
        """A row as bytes. Raises TypeError or ValueError if it does not fit the schema."""
        given = fields_of(row, self._names)
        made: dict[str, Any] = {EXPIRES: expires} if self._ttl else {}
        for name, to, value in zip(self._names, self._to, given, strict=True):
            made[name] = None if value is None else to(value)
        return self._layout.pack(made)

    def unpack(self, raw: bytes) -> tuple[Any, ...]:
        """The row as a tuple, as Spark's states give it."""
        made = self._layout.unpack(raw)
        return tuple(
            made[name] if back is None or made[name] is None else back(made[name])
            for name, back in zip(self._names, self._from, strict=True)
        )

    def expires(self, raw: bytes) -> int | None:
        """When an entry expires (ms); None if never."""
        if not self._ttl:
            return None
        at: int | None = self._layout.unpack(raw)[EXPIRES]
        return at
