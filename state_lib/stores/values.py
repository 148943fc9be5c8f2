"""The stored form of values: ``timestamp (8B BE, ms) ‖ value`` in timestamped and window stores."""

from __future__ import annotations

from struct import Struct

from state_lib.errors import SerdeError

_TIMESTAMP = Struct(">q")


def split_timestamp(stored: bytes) -> tuple[bytes, int]:
    """Value and timestamp (ms). Raises SerdeError if shorter than a timestamp."""
    if len(stored) < _TIMESTAMP.size:
        raise SerdeError(
            f"a timestamped value has at least {_TIMESTAMP.size} bytes, not {len(stored)}",
            serde="timestamped",
            seen=stored.hex(),
        )
    return stored[_TIMESTAMP.size :], _TIMESTAMP.unpack_from(stored)[0]


def after(key: bytes) -> bytes:
    """The least key greater than ``key``."""
    return key + b"\0"


def after_prefix(prefix: bytes) -> bytes | None:
    """The least key greater than all that start with the prefix; None if there is none."""
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes([head[-1] + 1]) if head else None
