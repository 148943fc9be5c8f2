"""Where a page ended: opaque to callers, and harmless whatever they send."""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

import orjson

from state_lib.errors import InvalidRequest


class Cursor(NamedTuple):
    """The last entry looked at. ``segment`` is 0 for key-value stores."""

    segment: int
    key: bytes

    def to_text(self) -> str:
        """As a URL parameter."""
        raw = orjson.dumps([self.segment, self.key.hex()])
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")

    @classmethod
    def from_text(cls, text: str) -> Cursor:
        """The inverse of `to_text`. Raises InvalidRequest for anything else."""
        try:
            raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            segment, key = orjson.loads(raw)
            if type(segment) is int:
                return cls(segment, bytes.fromhex(key))
        except (ValueError, TypeError, binascii.Error):
            pass
        raise InvalidRequest(
            "the cursor is not one that a page gave: start again without it", seen=text
        )
