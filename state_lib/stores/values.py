"""The stored form of values: ``timestamp (8B BE, ms) ‖ value`` in timestamped and window stores."""

from __future__ import annotations

from struct import Struct
from typing import Any

from state_lib.errors import SerdeError
from state_lib.serdes import Serde
from state_lib.specs import StoreSpec
from state_lib.stores.interfaces import ValueAndTimestamp

_TIMESTAMP = Struct(">q")


def with_timestamp(value: bytes, timestamp: int) -> bytes:
    """The stored value."""
    return _TIMESTAMP.pack(timestamp) + value


def split_timestamp(stored: bytes) -> tuple[bytes, int]:
    """Value and timestamp (ms). Raises SerdeError if shorter than a timestamp."""
    if len(stored) < _TIMESTAMP.size:
        raise SerdeError(
            f"a timestamped value has at least {_TIMESTAMP.size} bytes, not {len(stored)}",
            serde="timestamped",
            seen=stored.hex(),
        )
    return stored[_TIMESTAMP.size :], _TIMESTAMP.unpack_from(stored)[0]


def to_stored(spec: StoreSpec, serde: Serde[Any], value: object, timestamp: int) -> bytes | None:
    """What is stored for a value; None (a delete) for None."""
    if value is None:
        return None
    data = serde.serialize(value)
    return with_timestamp(data, timestamp) if spec.is_timestamped else data


def from_stored(spec: StoreSpec, serde: Serde[Any], stored: bytes) -> Any:
    """The value, as `ValueAndTimestamp` if the store is timestamped."""
    if not spec.is_timestamped:
        return serde.deserialize(stored)
    data, timestamp = split_timestamp(stored)
    return ValueAndTimestamp(serde.deserialize(data), timestamp)


def after(key: bytes) -> bytes:
    """The least key greater than ``key``."""
    return key + b"\0"


def after_prefix(prefix: bytes) -> bytes | None:
    """The least key greater than all that start with the prefix; None if there is none."""
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes([head[-1] + 1]) if head else None
