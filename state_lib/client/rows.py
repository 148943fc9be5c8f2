"""Results of range queries: rows as they arrive, and the position they were read at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from state_lib.keys import window_key
from state_lib.protocol.json_forms import key_from_json
from state_lib.serdes import serde_from
from state_lib.stores.segments import segment_id

Json = dict[str, Any]


class Rows(Iterator[Json]):
    """Entries as dicts, once. ``position`` grows: task → marker of the last page read from it."""

    def __init__(self) -> None:
        self.position: Json = {}
        self._rows: Iterator[Json] = iter(())

    def take(self, rows: Iterator[Json]) -> None:
        """Where the rows come from."""
        self._rows = rows

    def __next__(self) -> Json:
        """The next entry. Raises what the request of its page raises."""
        return next(self._rows)


def ordering(spec: Mapping[str, Any]) -> Callable[[Json], tuple[int, bytes]]:
    """The order in which hosts give the entries of a store, as a sort key over shown entries."""
    serde = serde_from(spec["key_serde"])
    interval = int(spec["segment_interval_ms"])

    def order(entry: Json) -> tuple[int, bytes]:
        key = serde.serialize(key_from_json(spec["key_serde"], entry["key"]))
        if not interval:
            return 0, key
        start = int(entry["window_start"])
        return segment_id(start, interval), window_key(key, start)

    return order
