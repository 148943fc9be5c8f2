"""Dead letters as they are written."""

from __future__ import annotations

import base64

import orjson
import pyarrow as pa

from state_lib.host.letters import dead_letters


def letter(key: bytes | None, value: bytes | None, **more: object) -> bytes:
    given = {"key": key, "value": value}
    plain = {n: base64.b64encode(v).decode() for n, v in given.items() if v is not None}
    place = {"topic": "t", "partition": 3, "offset": 7, "reason": "undecodable", "timestamp": 5}
    return orjson.dumps({**place, **plain, **more})


def unpacked(raw: bytes, most: int) -> tuple[bytes | None, bytes | None, dict[str, bytes]]:
    records = dead_letters("dead", pa.array([raw], pa.binary()), most)
    assert records.headers is not None
    return records.keys[0], records.values[0], dict(records.headers[0])


def test_what_fits_is_whole() -> None:
    key, value, headers = unpacked(letter(b"k" * 40, b"v" * 60), 100)
    assert (key, value) == (b"k" * 40, b"v" * 60)
    assert "__streams.errors.truncated" not in headers
    assert headers["__streams.errors.offset"] == b"7"
    assert unpacked(letter(None, None), 100)[:2] == (None, None)


def test_what_does_not_fit_is_cut_and_says_so() -> None:
    key, value, headers = unpacked(letter(b"k" * 40, b"v" * 61), 100)
    assert (key, value) == (b"k" * 40, b"v" * 60)
    assert headers["__streams.errors.truncated"] == b"key 40 bytes, value 61 bytes"
    assert headers["__streams.errors.topic"] == b"t"
    key, value, headers = unpacked(letter(b"k" * 150, b"v"), 100)
    assert (key, value) == (b"k" * 100, b"")
    assert unpacked(letter(b"k" * 150, None), 100)[:2] == (b"k" * 100, None)


def test_a_size_is_told() -> None:
    headers = unpacked(letter(None, b"v", size=12, limit=10, reason="too-large:s"), 100)[2]
    assert headers["__streams.errors.size"] == b"12"
    assert headers["__streams.errors.limit"] == b"10"
