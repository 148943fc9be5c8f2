"""Dead letters: records that could not be used, kept as they came.

Key and value are the source record's own bytes; where it came from and why stand in headers, named
as Kafka Streams names them (KIP-1034). Timestamps are wall time, so that retention counts from the
day of the failure and not from a broken event time.
"""

from __future__ import annotations

import base64

import orjson
import pyarrow as pa

from state_lib.changelog.writer import Headers, Records
from state_lib.marker import now_ms


def dead_letters(topic: str, letters: pa.BinaryArray) -> Records:
    """Unpack letters as executors send them.

    Each is a JSON object with topic, partition, offset, reason, timestamp, and base64 of key and
    value (absent where the source has null).
    """
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    headers: list[Headers] = []
    for raw in letters.to_pylist():
        letter = orjson.loads(raw or b"")
        keys.append(_plain(letter.get("key")))
        values.append(_plain(letter.get("value")))
        headers.append(
            [
                ("__streams.errors.topic", str(letter["topic"]).encode()),
                ("__streams.errors.partition", str(letter["partition"]).encode()),
                ("__streams.errors.offset", str(letter["offset"]).encode()),
                ("__streams.errors.message", str(letter["reason"]).encode()),
                ("__streams.errors.timestamp", str(letter["timestamp"]).encode()),
            ]
        )
    return Records(topic, keys, values, [now_ms()] * len(keys), headers)


def _plain(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
