"""One task's RocksDB: a column family per store (and window segment), no write-ahead log.

Three things that rocksdict does and that would tear an atomic write, each seen by trying:
``Rdict.flush`` flushes one family only; so does `Rdict.close`; and so does the *garbage
collection* of any ``Rdict``. Hence one ``Rdict`` per family lives as long as the engine, and
closing first calls ``cancel_all_background``, which flushes all families at one point and refuses
later flushes. It runs at interpreter exit too, if nobody closed the engine.
"""

from __future__ import annotations

import logging
import shutil
import threading
import weakref
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice, repeat
from pathlib import Path

import rocksdict

from state_lib.errors import ConfigurationError, StateCorrupt
from state_lib.stores.interfaces import Changes, check_lengths
from state_lib.stores.rocksdb.failures import closed, translated
from state_lib.stores.rocksdb.options import RocksDBOptions
from state_lib.stores.rocksdb.scans import check_end, one_view
from state_lib.stores.segments import META_FAMILY

_log = logging.getLogger(__name__)
Entry = tuple[bytes, bytes]
_DEFAULT = "default"
_FLUSH_DIR = "flush.tmp"
_FLUSHES = 3
"""Attempts to leave little for the checkpoint itself, against commits that go on meanwhile."""
_SMALL_BYTES = 256 << 10
"""What a checkpoint flushes by itself within about 5 ms."""
_AHEAD = 512
"""Entries that a scan has read ahead of whoever iterates over it, at most."""
_CHUNK = 256  # keys per multi-get: 850 k/s, against 550 k/s one by one and 400 k/s all at once


def write_sst(
    path: Path,
    keys: Sequence[bytes],
    values: Sequence[bytes | None],
    options: RocksDBOptions | None = None,
) -> None:
    """Write an SST file for `RocksDBEngine.ingest`. See `Engine.write_run` for the contract.

    Raises:
        InvalidRequest: keys not strictly ascending, none at all, or not as many as values.
        Unavailable: the disk is full.
    """
    check_lengths(keys, values)
    writer = rocksdict.SstFileWriter((options or RocksDBOptions()).render())
    with translated(path, "write"):
        writer.open(str(path))
        if None in values:
            for key, value in zip(keys, values, strict=True):
                if value is None:
                    del writer[key]
                else:
                    writer[key] = value
        else:
            deque(map(writer.__setitem__, keys, values), 0)
        writer.finish()


class RocksDBEngine:
    """`Engine` on local disk.

    **A full disk** [tried: size-limited tmpfs]: the write that meets a failed background flush,
    and all after it, raise Unavailable and are not applied; so do `flush` and `checkpoint`; reads
    go on. Once there is space, RocksDB resumes by itself within about 5 s with every acknowledged
    write, so re-opening is not needed. Closing instead loses what was not flushed, all families
    back to one point, and the directory opens even while the disk is full.

    Args:
        path: made if missing. All families that exist in it are opened.
        options: see `RocksDBOptions`.
        read_only: for a checkpoint or a fetched snapshot: nothing in it changes but RocksDB's own
            log, and writes fail.

    Raises:
        StateCorrupt: not a readable RocksDB (files without a CURRENT file included: RocksDB
            would silently start an empty one over them).
        Unavailable: disk full, or another engine has the directory open.
    """

    def __init__(
        self, path: str | Path, options: RocksDBOptions | None = None, *, read_only: bool = False
    ) -> None:
        self._path = Path(path)
        self._rocksdb_options = options or RocksDBOptions()
        self._options = self._rocksdb_options.render()
        self._lock = threading.RLock()
        self._flush_lock = threading.RLock()
        self._write_options = rocksdict.WriteOptions()
        self._write_options.disable_wal = True  # type: ignore[method-assign,assignment]
        self._dicts: dict[str, rocksdict.Rdict] = {}
        self._handles: dict[str, rocksdict.ColumnFamily] = {}
        self._scans: set[Generator[list[Entry], None, None]] = set()
        with translated(self._path, "open"):
            names = self._existing()
            families = dict.fromkeys(names, self._options)
            kind = rocksdict.AccessType
            access = kind.read_only() if read_only else kind.read_write()
            self._db = rocksdict.Rdict(str(self._path), self._options, families or None, access)
        self._closer = weakref.finalize(
            self, _shut, self._db, self._dicts, self._handles, self._scans
        )
        with translated(self._path, "open"):
            for name in names:
                if name != _DEFAULT:
                    self._dicts[name] = self._db.get_column_family(name)
                    self._handles[name] = self._db.get_column_family_handle(name)
            shutil.rmtree(self._path / _FLUSH_DIR, ignore_errors=True)

    def _existing(self) -> list[str]:
        self._path.mkdir(parents=True, exist_ok=True)
        if (self._path / "CURRENT").exists():
            return rocksdict.Rdict.list_cf(str(self._path), self._options)
        left = sorted(p.name for p in self._path.iterdir() if p.suffix == ".sst")
        if left:
            raise StateCorrupt(
                f"{self._path} has data files ({left[0]}, …) but no CURRENT file; set the "
                "directory aside and restore",
                path=str(self._path),
                reason="CURRENT is missing",
            )
        return []

    @property
    def path(self) -> Path:
        """The directory."""
        return self._path

    @property
    def options(self) -> RocksDBOptions:
        """What it was opened with."""
        return self._rocksdb_options

    @property
    def open_iterators(self) -> int:
        """Scans entered and not yet left."""
        return len(self._scans)

    def families(self) -> list[str]:
        """Names, sorted; RocksDB's own ``default`` is not one of them."""
        with self._lock:
            self._check_open()
            return sorted(self._dicts)

    def create(self, family: str) -> None:
        """Make an empty family; does nothing if it exists."""
        with self._lock, translated(self._path, f"create family {family!r} in"):
            self._check_open()
            if family == _DEFAULT:
                raise ConfigurationError(f"a family cannot be named {family!r}", name=family)
            if family not in self._dicts:
                self._dicts[family] = self._db.create_column_family(family, self._options)
                self._handles[family] = self._db.get_column_family_handle(family)

    def drop(self, family: str) -> None:
        """Remove a family; open scans of it still see its entries."""
        with self._lock, translated(self._path, f"drop family {family!r} of"):
            self._check_open()
            if family in self._dicts:
                self._db.drop_column_family(family)
                del self._handles[family], self._dicts[family]

    def get(self, family: str, key: bytes) -> bytes | None:
        """The value, or None."""
        return self.get_many(family, (key,))[0]

    def get_many(self, family: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values in the order asked."""
        found = self._dicts.get(family)
        self._check_open()  # after the look-up: `close` empties the dict
        if found is None:
            return [None] * len(keys)
        out: list[bytes | None] = []
        with translated(self._path, "read"):
            for at in range(0, len(keys), _CHUNK):
                out += found.get(list(keys[at : at + _CHUNK])) or ()
        return out

    @contextmanager
    def scan(
        self, family: str, lower: bytes | None, upper: bytes | None, *, reverse: bool = False
    ) -> Iterator[Iterator[tuple[bytes, bytes]]]:
        """See `Engine.scan`; the view is that of RocksDB's iterators."""
        source = self._dicts.get(family)
        self._check_open()
        entries = self._entries(source, lower, upper, reverse=reverse)
        next(entries)  # run to its first yield: the iterators are made now
        self._scans.add(entries)
        try:
            yield chain.from_iterable(entries)
        finally:
            self._scans.discard(entries)
            entries.close()

    def _entries(
        self,
        source: rocksdict.Rdict | None,
        lower: bytes | None,
        upper: bytes | None,
        *,
        reverse: bool,
    ) -> Generator[list[Entry], None, None]:
        """In chunks, which chains pass on without Python's help: 60 ns less for an entry."""
        bounds = rocksdict.ReadOptions()
        # Not set_iterate_lower_bound: rocksdict 0.3.29 sets the *upper* bound with it [tried].
        if upper is not None:
            bounds.set_iterate_upper_bound(upper)
        if source is None or (upper is not None and upper <= (lower or b"")):
            yield []
            return
        with translated(self._path, "scan"):
            items, probe = one_view(source, bounds, None if reverse else lower, reverse=reverse)
            chunk: list[Entry] = []
            yield chunk
            last: bytes | None = None
            size = 1
            try:
                while chunk := list(islice(items, size)):
                    last, size = chunk[-1][0], min(2 * size, _AHEAD)
                    if reverse and lower and last < lower:
                        yield [entry for entry in chunk if entry[0] >= lower]
                        return
                    yield chunk
            finally:
                chunk.clear()  # whoever still iterates over it has left the scan
            check_end(self._path, probe, last, lower, reverse=reverse)

    def write(self, changes: Mapping[str, Changes]) -> None:
        """One WriteBatch over all families: see the class on full disks."""
        batch = rocksdict.WriteBatch(raw_mode=True)
        self._check_open()
        with translated(self._path, "write"):
            for family, (keys, values) in changes.items():
                check_lengths(keys, values)
                self.create(family)
                _fill(batch, self._handles[family], keys, values)
            self._db.write(batch, self._write_options)

    def write_run(self, path: Path, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """An SST file with this engine's options: see `write_sst`."""
        write_sst(path, keys, values, self._rocksdb_options)

    def ingest(self, family: str, paths: Sequence[Path]) -> None:
        """Link SST files into a family, all or none; later files win over earlier ones."""
        how = rocksdict.IngestExternalFileOptions()
        how.set_move_files(True)
        self.create(family)
        with translated(self._path, "ingest into"):
            self._dicts[family].ingest_external_file([str(p) for p in paths], how)

    def approximate_num_entries(self, family: str) -> int:
        """RocksDB's ``estimate-num-keys``."""
        return self.property_int(family, "rocksdb.estimate-num-keys")

    def size_bytes(self, family: str) -> int:
        """SST files and memtables."""
        return self.property_int(family, "rocksdb.total-sst-files-size") + self.property_int(
            family, "rocksdb.size-all-mem-tables"
        )

    def property_int(self, family: str, name: str) -> int:
        """One of RocksDB's own numbers of a family, 0 if it is not there."""
        found = self._dicts.get(family)
        self._check_open()
        with translated(self._path, "inspect"):
            return 0 if found is None else found.property_int_value(name) or 0

    def flush(self) -> None:
        """A checkpoint that is removed again: flushes all families at one point.

        Other threads run meanwhile, see `checkpoint`.
        """
        target = self._path / _FLUSH_DIR
        with self._flush_lock:
            shutil.rmtree(target, ignore_errors=True)
            try:
                self.checkpoint(target)
            finally:
                shutil.rmtree(target, ignore_errors=True)

    def checkpoint(self, path: Path) -> None:
        """Hard links to the SST files, after a flush of all families; needs no pause of writes.

        rocksdict makes checkpoints without releasing the GIL, 4 ms for each MB to flush: that
        would stop the whole process [tried]. Hence `_flush_aside` first.

        Raises:
            InvalidRequest: ``path`` exists.
        """
        with self._flush_lock, translated(self._path, "checkpoint"):
            self._check_open()
            self._flush_aside()
            rocksdict.Checkpoint(self._db).create_checkpoint(str(path))

    def _flush_aside(self) -> None:
        """Flush all families at one point without holding the GIL.

        A manual compaction of a family whose memtable holds something starts with an atomic flush
        of *all* families, and rocksdict releases the GIL for it [tried: the tests of what is
        never torn]. The metadata family is the smallest, and every commit writes to it.
        """
        meta = self._dicts.get(META_FAMILY)
        if meta is None:
            return
        options = rocksdict.CompactOptions()
        options.set_exclusive_manual_compaction(False)  # do not wait for other compactions
        for _ in range(_FLUSHES):
            if sum(map(self._memtable_bytes, list(self._dicts))) <= _SMALL_BYTES:
                return
            meta.compact_range(None, None, options)

    def _memtable_bytes(self, family: str) -> int:
        return self.property_int(family, "rocksdb.cur-size-all-mem-tables")

    def close(self) -> None:
        """Flush all families at one point, close data families, then metadata, then all.

        A flush or checkpoint under way in another thread ends first.
        """
        with self._flush_lock, self._lock:
            if self._closer.alive:
                self._closer()
                del self._db

    def _check_open(self) -> None:
        if not self._closer.alive:
            raise closed(self._path)


def _fill(
    batch: rocksdict.WriteBatch,
    handle: rocksdict.ColumnFamily,
    keys: Sequence[bytes],
    values: Sequence[bytes | None],
) -> None:
    if None not in values:
        deque(map(batch.put, keys, values, repeat(handle)), 0)
        return
    put, delete = batch.put, batch.delete
    for key, value in zip(keys, values, strict=True):
        if value is None:
            delete(key, handle)
        else:
            put(key, value, handle)


def _shut(
    db: rocksdict.Rdict,
    dicts: dict[str, rocksdict.Rdict],
    handles: dict[str, rocksdict.ColumnFamily],
    scans: set[Generator[list[Entry], None, None]],
) -> None:
    """Release everything that holds the directory's lock. Holds no reference to the engine."""
    for entries in list(scans):
        with suppress(ValueError):  # in use by another thread, whose own context closes it
            entries.close()
    with suppress(rocksdict.DbClosedError):
        db.cancel_all_background(wait=True)
    for name in sorted(dicts, key=lambda family: family == META_FAMILY):
        _close(dicts[name])
    dicts.clear()
    handles.clear()
    _close(db)


def _close(handle: rocksdict.Rdict) -> None:
    """Close what `_shut` has flushed: rocksdict flushes again, and RocksDB refuses that."""
    try:
        handle.close()
    except Exception as error:  # noqa: BLE001  rocksdict raises nothing more specific
        if "Shutdown in progress" not in str(error):
            _log.warning("closing %s: %s", handle.path(), error)
