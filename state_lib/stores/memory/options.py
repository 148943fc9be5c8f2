"""Bounds of a memory engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from state_lib.errors import ConfigurationError

ENTRY_OVERHEAD_BYTES = 200
"""What an entry costs besides its key and value: two object headers, a dict slot, a list slot.
[measured with tracemalloc over 200,000 entries: see tests/unit/stores/test_memory_engine.py]"""


@dataclass(frozen=True)
class MemoryOptions:
    """Bounds of the stores of one task, in bytes, `ENTRY_OVERHEAD_BYTES` per entry included.

    Attributes:
        max_bytes: of each store that ``max_bytes_of`` does not name; all segments count together.
        max_bytes_of: bounds of single stores.

    Raises:
        ConfigurationError: a bound that is not positive.
    """

    max_bytes: int = 256 << 20
    max_bytes_of: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, bound in {"*": self.max_bytes, **self.max_bytes_of}.items():
            if bound <= 0:
                raise ConfigurationError(
                    f"max_bytes of memory store {name!r} is {bound}; it must be positive"
                )

    def bound_of(self, store: str) -> int:
        """The bound of a store."""
        return self.max_bytes_of.get(store, self.max_bytes)
