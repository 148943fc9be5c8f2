"""Keys of several columns in tests: PySpark's rows, which are tuples with names."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Row

from state_lib.serdes import Serde, serde_from
from state_lib.serdes.kinds import columns_of


class Keys:
    """Of a store or a topic.

    Args:
        described: their serde, as in a topology.
    """

    def __init__(self, described: Any) -> None:
        self._serde: Serde[Any] = serde_from(described)
        self._names = [name for name, _ in columns_of(described)]

    def raw(self, key: Any) -> bytes:
        """A key's bytes; of several columns from a mapping, a `Row` with names, or a tuple.

        A tuple has them in their order, a `Row` by its names in any.

        Raises:
            SerdeError: it is of another type.
        """
        if self._names and isinstance(key, Row) and hasattr(key, "__fields__"):
            key = key.asDict()
        elif self._names and isinstance(key, tuple) and len(key) == len(self._names):
            key = dict(zip(self._names, key, strict=True))
        return self._serde.serialize(key)

    def shown(self, raw: bytes) -> Any:
        """The inverse of `raw`: of several columns a `Row`, which is equal to a tuple of them."""
        key = self._serde.deserialize(raw)
        if not self._names:
            return key
        return Row(*self._names)(*key.values())
