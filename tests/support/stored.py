"""Stored values, as a commit writes them."""

from __future__ import annotations

import struct


def with_timestamp(value: bytes, timestamp: int) -> bytes:
    """The stored value of timestamped and window stores."""
    return struct.pack(">q", timestamp) + value
