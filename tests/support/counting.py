"""A restore listener that remembers."""

from __future__ import annotations

from collections import Counter


class Counting:
    """Records replayed per store, and the ranges that were asked for."""

    def __init__(self) -> None:
        self.records: Counter[str] = Counter()
        self.ranges: dict[str, tuple[int, int]] = {}
        self.ended: list[str] = []
        self.errors: list[str] = []
        self.fetched: tuple[int, int] | None = None

    def on_restore_start(self, task: str, store: str, start: int, end: int) -> None:
        del task
        self.records.pop(store, None)  # an attempt before this one
        self.ranges[store] = (start, end)

    def on_batch_restored(self, task: str, store: str, records: int, offset: int) -> None:
        del task, offset
        self.records[store] += records

    def on_restore_end(self, task: str, store: str, records: int) -> None:
        del task
        assert records == self.records[store]
        self.ended.append(store)

    def on_snapshot_fetched(self, task: str, done: int, total: int) -> None:
        del task
        self.fetched = (done, total)

    def on_restore_error(self, task: str, why: str) -> None:
        del task
        self.errors.append(why)
