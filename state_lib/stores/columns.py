"""A store's entries as Arrow columns, thousands at a time: what scans of whole stores give.

RocksDB's binding makes a Python object of every key and value; whatever comes after it takes whole
columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import NamedTuple

import pyarrow as pa

from state_lib.keys import SUFFIX_BYTES, after_prefix, split_window_keys
from state_lib.specs import StoreSpec
from state_lib.stores.interfaces import BytesStore

MAX_ROWS, MAX_BYTES = 50_000, 16 << 20
"""Of one part; a single step of `_STEP` entries may go beyond the bytes."""
_STEP = 512


class Columns(NamedTuple):
    """Entries as stored: key *i* has value *i*; nothing is null."""

    keys: pa.BinaryArray
    values: pa.BinaryArray


@contextmanager
def selected(
    store: BytesStore, keys: Sequence[bytes] | None = None
) -> Iterator[Iterator[tuple[bytes, bytes]]]:
    """Entries of a store as they are on entry, expired ones included.

    Args:
        store: to read. Who needs several segments at one instant keeps writers out on entry.
        keys: serialized, distinct; of window stores the inner ones; None for all. Each of a window
            store's costs a scan of every segment.
    """
    with ExitStack() as held:
        if keys is None:
            yield held.enter_context(store.scan())
        elif store.spec.is_window:
            found = [(k, held.enter_context(store.scan(k, after_prefix(k)))) for k in keys]
            # A longer key may begin with this one.
            yield (e for k, es in found for e in es if len(e[0]) == len(k) + SUFFIX_BYTES)
        else:
            values = store.get_many(keys)
            yield ((k, v) for k, v in zip(keys, values, strict=True) if v is not None)


def columns(entries: Iterable[tuple[bytes, bytes]]) -> Iterator[Columns]:
    """Entries in parts of at most `MAX_ROWS` rows and about `MAX_BYTES`; none is empty."""
    rest = iter(entries)
    parts: list[Columns] = []
    rows = size = 0
    while step := list(islice(rest, _STEP)):
        keys, values = zip(*step, strict=True)
        part = Columns(pa.array(keys, pa.binary()), pa.array(values, pa.binary()))
        parts.append(part)
        rows, size = rows + len(step), size + part.keys.nbytes + part.values.nbytes
        if rows > MAX_ROWS - _STEP or size >= MAX_BYTES:
            yield _joined(parts)
            parts, rows, size = [], 0, 0
    if parts:
        yield _joined(parts)


def live(spec: StoreSpec, part: Columns, clock: int) -> Columns:
    """What of it is not expired at ``clock`` (ms), as `state_lib.stores.segments.is_live`."""
    if not spec.is_window:
        return part
    lives = split_window_keys(part.keys)[1] > clock - spec.retention_ms
    if lives.all():
        return part
    mask = pa.array(lives)
    return Columns(part.keys.filter(mask), part.values.filter(mask))


def _joined(parts: Sequence[Columns]) -> Columns:
    keys, values = zip(*parts, strict=True)
    return Columns(pa.concat_arrays(keys), pa.concat_arrays(values))
