"""Scans of RocksDB that are of one instant, and that cannot end early in silence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import rocksdict

from state_lib.errors import StateCorrupt


def one_view(
    source: rocksdict.Rdict, bounds: rocksdict.ReadOptions, start: bytes | None, *, reverse: bool
) -> tuple[Iterator[tuple[bytes, bytes]], rocksdict.RdictIter]:
    """The entries and a probe for `check_end`, both of the same instant, whatever is written.

    Not by ``Rdict.snapshot``: what iterates over that sees later writes [tried: rocksdict 0.3.29].
    An iterator keeps the sequence number of its making; if it has not moved, both have the same.
    """
    while True:
        number = source.latest_sequence_number()
        items: Any = source.items(reverse, start, bounds)
        probe = source.iter(bounds)
        if source.latest_sequence_number() == number:
            return items, probe


def check_end(
    path: Path,
    probe: rocksdict.RdictIter,
    last: bytes | None,
    lower: bytes | None,
    *,
    reverse: bool,
) -> None:
    """Raise if entries follow the last one seen: rocksdict ends a scan in silence at a bad block.

    [tried] ``RdictItems`` stops at an unreadable block as if there were no more; only
    ``RdictIter.status`` tells.
    """
    if reverse:
        if last is None:
            probe.seek_to_last()
        else:
            probe.seek_for_prev(last)
            probe.prev()
    elif last is None:
        probe.seek(lower or b"")
    else:
        probe.seek(last)
        probe.next()
    probe.status()
    if probe.valid() and not (reverse and lower and probe.key() < lower):
        raise StateCorrupt(
            f"a scan of {path} stopped early, after {last!r}; set the directory aside and restore",
            path=str(path),
            reason="scan stopped early",
        )
