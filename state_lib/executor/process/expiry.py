"""Removes entries whose time to live is over. Reads check the expiry in each entry on their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from state_lib.executor.process import layout
from state_lib.executor.process.states import Entries, Scene

MOST = 100_000
"""Most entries removed by one commit; the next one removes others."""
_STEP = 4096


class Expiry:
    """Expired entries of one processor, task and batch.

    Args:
        scene: of its states.
        states: state → its entries.
    """

    def __init__(self, scene: Scene, states: Mapping[str, Entries]) -> None:
        self._scene, self._states = scene, states
        self.next_ms: int | None = None
        """The earliest time at which an entry may expire next; None: none will."""

    def remove(self) -> None:
        """Delete expired entries, and their expiries in the store of timers."""
        due = self._due()
        while some := list(islice(due, _STEP)):
            said = [layout.split_expiring(raw)[1:] for raw in some]
            for name, entries in self._states.items():
                told = [entry for state, entry in said if state == name]
                self._scene.buffer.look(entries.store, told)  # just before use: the cache is small
                for entry in [one for one in dict.fromkeys(told) if entries.expired(one)]:
                    entries.delete(entry)
                    self._shorten(name, entry)
            for raw in some:
                self._scene.buffer.put(self._scene.timers, raw, None)
        self._scene.buffer.keep(self._scene.now_ms)

    def _due(self) -> Iterator[bytes]:
        found = self._scene.buffer.entries(self._scene.timers, *layout.within(layout.EXPIRIES))
        for number, (raw, _) in enumerate(found):
            expires, _, _ = layout.split_expiring(raw)
            if expires > self._scene.now_ms or number >= MOST:
                self.next_ms = expires
                return
            yield raw

    def _shorten(self, state: str, entry: bytes) -> None:
        """Let a list begin after its removed first element; elements expire in their order."""
        if not self._states[state].is_list:
            return
        buffer, timers = self._scene.buffer, self._scene.timers
        at = layout.ends_key(state, layout.split(entry)[0])
        first, following = layout.unpack_ends(buffer.get(timers, at))
        if layout.number_of(entry) == first < following:
            left = first + 1 < following
            buffer.put(timers, at, layout.pack_ends(first + 1, following) if left else None)
