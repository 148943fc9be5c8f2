"""Sorted files of a memory engine: for checkpoints and bulk loads.

``key length (4B BE) ‖ value length (4B BE, all ones: deleted) ‖ key ‖ value`` for each entry, then
xxh3_128 of all that (16 bytes).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from struct import Struct

import xxhash

from state_lib.errors import InvalidRequest, StateCorrupt, Unavailable

_HEAD = Struct(">II")
_DELETED = 0xFFFFFFFF
_DIGEST_BYTES = 16


def write_run(path: Path, entries: Iterable[tuple[bytes, bytes | None]]) -> None:
    """Write entries, which must be in ascending order of key.

    Raises:
        InvalidRequest: the same key twice, or descending.
        Unavailable: the disk is full or refuses.
    """
    rows = list(entries)
    for (first, _), (second, _) in pairwise(rows):
        if first >= second:
            raise InvalidRequest(f"cannot write {path}: keys must be strictly ascending")
    parts: list[bytes] = []
    for key, value in rows:
        size = _DELETED if value is None else len(value)
        parts += (_HEAD.pack(len(key), size), key, value or b"")
    body = b"".join(parts)
    try:
        path.write_bytes(body + xxhash.xxh3_128_digest(body))
    except OSError as error:
        raise Unavailable(f"cannot write {path}: {error}; free space", path=str(path)) from error


def read_run(path: Path) -> Iterator[tuple[bytes, bytes | None]]:
    """The entries. Raises StateCorrupt, before the first one, if the file is not whole."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StateCorrupt(f"cannot read {path}: {error}", path=str(path)) from error
    body = data[:-_DIGEST_BYTES]
    if len(data) < _DIGEST_BYTES or xxhash.xxh3_128_digest(body) != data[-_DIGEST_BYTES:]:
        raise StateCorrupt(f"{path} is cut short or changed: checksum differs", path=str(path))
    return _rows(body)


def _rows(body: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    at = 0
    while at < len(body):
        key_bytes, value_bytes = _HEAD.unpack_from(body, at)
        middle = at + _HEAD.size + key_bytes
        key = body[at + _HEAD.size : middle]
        at = middle if value_bytes == _DELETED else middle + value_bytes
        yield key, None if value_bytes == _DELETED else body[middle:at]
