"""Dead letters: records that could not be used, kept as they came.

Key and value are the source record's own bytes; where it came from and why stand in headers, named
as Kafka Streams names them (KIP-1034). Timestamps are wall time, so that retention counts from the
day of the failure and not from a broken event time.

One that is larger than the topic takes is cut: its value first, then its key. The header
``__streams.errors.truncated`` says how large they were; the whole record is where it came from.
"""

from __future__ import annotations

import base64

import orjson
import pyarrow as pa

from state_lib.changelog.limits import USUAL
from state_lib.changelog.writer import Headers, Records
from state_lib.protocol.marker import now_ms

_HEADERS = [
    ("topic", "topic"), ("partition", "partition"), ("offset", "offset"), ("message", "reason"),
    ("timestamp", "timestamp"), ("size", "size"), ("limit", "limit"), ("exception", "exception"),
]  # fmt: skip
"""Name in the headers, name in the letter."""


def dead_letters(topic: str, letters: pa.BinaryArray, most: int = USUAL) -> Records:
    """Unpack letters as executors send them.

    Each is a JSON object with topic, partition, offset, reason, timestamp, and base64 of key and
    value (absent where the source has null); ``size`` and ``limit`` where the reason is a size;
    ``exception`` where a processor raised.

    Args:
        topic: where they go.
        letters: as they came.
        most: the greatest key plus value (bytes) that the topic takes.
    """
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    headers: list[Headers] = []
    for raw in letters.to_pylist():
        letter = orjson.loads(raw or b"")
        said = [(f"__streams.errors.{name}", letter.get(at)) for name, at in _HEADERS]
        head = [(name, str(x).encode()) for name, x in said if x is not None]
        key, value = _plain(letter.get("key")), _plain(letter.get("value"))
        cut_key, cut_value = _cut(key, value, most)
        if (cut_key, cut_value) != (key, value):
            sizes = f"key {len(key or b'')} bytes, value {len(value or b'')} bytes"
            head.append(("__streams.errors.truncated", sizes.encode()))
        keys.append(cut_key)
        values.append(cut_value)
        headers.append(head)
    return Records(topic, keys, values, [now_ms()] * len(keys), headers)


def _cut(key: bytes | None, value: bytes | None, most: int) -> tuple[bytes | None, bytes | None]:
    key = None if key is None else key[:most]
    return key, None if value is None else value[: most - len(key or b"")]


def _plain(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
