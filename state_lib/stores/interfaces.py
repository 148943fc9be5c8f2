"""The contracts of engines and stores. Keys and values of engines are bytes; times are ms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeAlias

from state_lib.errors import InvalidRequest
from state_lib.specs import StoreSpec

Changes: TypeAlias = tuple[Sequence[bytes], Sequence[bytes | None]]
"""Keys and, in parallel, their new values; None deletes. A later entry of a key wins."""


def check_lengths(keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
    """Raise InvalidRequest unless keys and values are as many."""
    if len(keys) != len(values):
        raise InvalidRequest(f"{len(keys)} keys with {len(values)} values")


Entries: TypeAlias = AbstractContextManager[Iterator[tuple[bytes, bytes]]]


class Engine(Protocol):
    """One task's database: named families of entries sorted by key, unsigned byte order.

    Safe to use from several threads, one writer at a time. After `close` every method raises
    Unavailable. Any method may raise StateCorrupt (set the directory aside and rebuild) or
    Unavailable (a full disk, for example: nothing of the call was applied; try again).
    """

    @property
    def path(self) -> Path:
        """The directory."""
        ...

    @property
    def open_iterators(self) -> int:
        """Scans entered and not yet left; 0 unless someone leaks."""
        ...

    def families(self) -> list[str]:
        """Names, sorted."""
        ...

    def create(self, family: str) -> None:
        """Make an empty family; does nothing if it exists."""
        ...

    def drop(self, family: str) -> None:
        """Remove a family and its entries; does nothing if it is not there."""
        ...

    def get(self, family: str, key: bytes) -> bytes | None:
        """The value, or None if the key or the family is not there."""
        ...

    def get_many(self, family: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """`get` for each key, in the order asked; sorted keys are read fastest."""
        ...

    def scan(
        self, family: str, lower: bytes | None, upper: bytes | None, *, reverse: bool = False
    ) -> Entries:
        """Entries with ``lower <= key < upper`` (None: no bound), as they were when entered.

        A missing family has no entries. The iterator is dead once the context is left.
        """
        ...

    def write(self, changes: Mapping[str, Changes]) -> None:
        """Apply all changes of all families, or none; creates missing families.

        Raises:
            StoreFull: a memory store would pass its bound; nothing was applied.
            InvalidRequest: keys and values differ in number, or are not bytes.
        """
        ...

    def write_run(self, path: Path, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Write a file that `ingest` takes: keys strictly ascending, at least one; None deletes.

        Raises:
            InvalidRequest: keys are not ascending, or there are none.
        """
        ...

    def ingest(self, family: str, paths: Sequence[Path]) -> None:
        """Apply the files of `write_run` in order, over what is there. The files are consumed."""
        ...

    def approximate_num_entries(self, family: str) -> int:
        """An estimate: overwritten and deleted entries may still count."""
        ...

    def size_bytes(self, family: str) -> int:
        """Bytes of a family, on disk and in memory."""
        ...

    def flush(self) -> None:
        """Make every write so far survive a crash of the process, all families at one point."""
        ...

    def checkpoint(self, path: Path) -> None:
        """Write a consistent copy to ``path``, which must not exist; an engine can open it."""
        ...

    def close(self) -> None:
        """Flush and release the directory; ends open scans; does nothing the second time."""
        ...


class BytesStore(Protocol):
    """One store of a task at the level of bytes: what commits, restores and digests use.

    Keys are those of the changelog (composite for window stores); values are stored values.
    """

    @property
    def spec(self) -> StoreSpec:
        """What the store is."""
        ...

    def families(self) -> list[str]:
        """Its families that exist, oldest segment first."""
        ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values in the order asked. Does not judge expiry: see `live`."""
        ...

    def changes(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> dict[str, Changes]:
        """The changes, routed to families: merge several stores' dicts into one `Engine.write`."""
        ...

    def scan(self, lower: bytes | None = None, upper: bytes | None = None) -> Entries:
        """Entries with ``lower <= key < upper``: segments in order of time, by key within each."""
        ...

    def expired_families(self, clock: int) -> list[str]:
        """Existing families all of whose possible entries are expired at ``clock`` (ms)."""
        ...

    def live(self, key: bytes, clock: int) -> bool:
        """Whether an entry with this key is not expired at ``clock`` (ms)."""
        ...
