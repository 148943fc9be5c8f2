"""One task's stores in memory: a sorted dict per family, bounded in bytes.

Nothing survives `close`: a memory task always rebuilds itself from its changelog. A checkpoint
can be opened, so that snapshots work as they do for RocksDB.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import NoneType

from sortedcontainers import SortedDict

from state_lib.errors import ConfigurationError, InvalidRequest, StoreFull, Unavailable
from state_lib.stores.interfaces import Changes, check_lengths
from state_lib.stores.memory.options import ENTRY_OVERHEAD_BYTES, MemoryOptions
from state_lib.stores.memory.runs import read_run, write_run
from state_lib.stores.memory.scan import Scan
from state_lib.stores.segments import store_of

_SUFFIX = ".run"
_RESERVED = "default"


class MemoryEngine:
    """`Engine` in memory.

    Args:
        path: where a checkpoint may be; if it is a directory, its families are loaded.
        options: bounds; see `MemoryOptions`.

    Raises:
        StateCorrupt: a file of the checkpoint is not whole.
        StoreFull: the checkpoint does not fit.
    """

    def __init__(self, path: str | Path, options: MemoryOptions | None = None) -> None:
        self._path = Path(path)
        self._options = options or MemoryOptions()
        self._lock = threading.RLock()
        self._families: dict[str, SortedDict[bytes, bytes]] = {}
        self._bytes: dict[str, int] = {}
        self._scans: set[Scan] = set()
        self._open = True
        for file in sorted(self._path.glob(f"*{_SUFFIX}")):
            self.create(file.name.removesuffix(_SUFFIX))
            self._apply_run(file.name.removesuffix(_SUFFIX), file)

    @property
    def path(self) -> Path:
        """The directory given."""
        return self._path

    @property
    def open_iterators(self) -> int:
        """Scans entered and not yet left."""
        return len(self._scans)

    def families(self) -> list[str]:
        """Names, sorted."""
        with self._locked():
            return sorted(self._families)

    def create(self, family: str) -> None:
        """Make an empty family; does nothing if it exists."""
        with self._locked():
            if family == _RESERVED:
                raise ConfigurationError(f"a family cannot be named {family!r}", name=family)
            if family not in self._families:
                self._families[family] = SortedDict()
                self._bytes[family] = 0

    def drop(self, family: str) -> None:
        """Remove a family; open scans of it still see its entries."""
        with self._locked():
            self._families.pop(family, None)
            self._bytes.pop(family, None)

    def get(self, family: str, key: bytes) -> bytes | None:
        """The value, or None."""
        return self.get_many(family, (key,))[0]

    def get_many(self, family: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values in the order asked."""
        with self._locked():
            found = self._families.get(family)
            return [None] * len(keys) if found is None else list(map(found.get, keys))

    @contextmanager
    def scan(
        self, family: str, lower: bytes | None, upper: bytes | None, *, reverse: bool = False
    ) -> Iterator[Iterator[tuple[bytes, bytes]]]:
        """See `Engine.scan`; costs nothing until the family is written meanwhile."""
        with self._locked():
            view = Scan(self._families.get(family), lower, upper, self._lock, reverse=reverse)
            self._scans.add(view)
        try:
            yield view
        finally:
            with self._lock:
                self._scans.discard(view)
                view.end()

    def write(self, changes: Mapping[str, Changes]) -> None:
        """Check all bounds, then apply everything."""
        with self._locked():
            growth = self.check_room(changes)
            for family, (keys, values) in changes.items():
                self.create(family)
                self._apply(family, keys, values)
                self._bytes[family] += growth[family]

    def check_room(self, changes: Mapping[str, Changes]) -> dict[str, int]:
        """Growth of each family in bytes if `write` were called now; changes nothing.

        Raises:
            StoreFull, InvalidRequest: as `write` would.
        """
        with self._locked():
            growth = {f: self._growth(f, keys, values) for f, (keys, values) in changes.items()}
            self._check_bounds(growth)
            return growth

    def _growth(self, family: str, keys: Sequence[bytes], values: Sequence[bytes | None]) -> int:
        check_lengths(keys, values)
        present = self._families.get(family, {})
        growth = 0
        for key, value in dict(zip(keys, values, strict=True)).items():
            if type(key) is not bytes or type(value) not in (bytes, NoneType):
                raise InvalidRequest(f"keys and values are bytes, not {key!r} and {value!r}")
            growth += _cost(key, value) - _cost(key, present.get(key))
        return growth

    def _check_bounds(self, growth: Mapping[str, int]) -> None:
        for store in {store_of(family) for family, more in growth.items() if more > 0}:
            used = sum(size for family, size in self._bytes.items() if store_of(family) == store)
            more = sum(size for family, size in growth.items() if store_of(family) == store)
            bound = self._options.bound_of(store)
            if used + more > bound and more > 0:
                raise StoreFull(
                    f"memory store {store!r} holds {used} bytes and this write needs {more} more, "
                    f"over its bound of {bound}: raise max_bytes, shorten the retention, or use "
                    "the rocksdb backend",
                    store=store,
                    max_bytes=bound,
                    needed_bytes=used + more,
                )

    def _apply(self, family: str, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        entries = self._families[family]
        for view in self._scans:
            view.detach(entries)
        for key, value in zip(keys, values, strict=True):
            if value is None:
                entries.pop(key, None)
            else:
                entries[key] = value

    def write_run(self, path: Path, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """A file of the module `runs`."""
        check_lengths(keys, values)
        if not keys:
            raise InvalidRequest(f"cannot write {path}: no entries")
        write_run(path, zip(keys, values, strict=True))

    def ingest(self, family: str, paths: Sequence[Path]) -> None:
        """Apply files of `write_run`, in order, and remove them."""
        self.create(family)
        for path in paths:
            self._apply_run(family, path)
            path.unlink()

    def _apply_run(self, family: str, path: Path) -> None:
        rows = list(read_run(path))
        self.write({family: ([key for key, _ in rows], [value for _, value in rows])})

    def approximate_num_entries(self, family: str) -> int:
        """Exact."""
        with self._locked():
            return len(self._families.get(family, ()))

    def size_bytes(self, family: str) -> int:
        """Bytes as the bound counts them."""
        with self._locked():
            return self._bytes.get(family, 0)

    def flush(self) -> None:
        """Nothing to do: memory survives no crash."""
        with self._locked():
            return

    def checkpoint(self, path: Path) -> None:
        """One file per family; writes wait only while references are copied.

        Raises:
            InvalidRequest: ``path`` exists.
        """
        self.frozen()(path)

    def frozen(self) -> Callable[[Path], None]:
        """What `checkpoint` would write now; the result writes it, whatever changes meanwhile."""
        with self._locked():
            copies = {family: list(found.items()) for family, found in self._families.items()}

        def write(path: Path) -> None:
            try:
                path.mkdir(parents=True)
            except FileExistsError as error:
                raise InvalidRequest(f"cannot checkpoint to {path}: it exists") from error
            for family, rows in copies.items():
                write_run(path / f"{family}{_SUFFIX}", rows)

        return write

    def close(self) -> None:
        """Forget everything."""
        with self._lock:
            self._open = False
            for view in self._scans:
                view.end()
            self._families.clear()
            self._bytes.clear()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._lock:
            if not self._open:
                raise Unavailable(
                    f"the engine of {self._path} is closed: open the task again",
                    path=str(self._path),
                )
            yield


def _cost(key: bytes, value: bytes | None) -> int:
    return 0 if value is None else len(key) + len(value) + ENTRY_OVERHEAD_BYTES
