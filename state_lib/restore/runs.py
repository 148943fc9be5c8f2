"""Sorted runs: from a range of a changelog to SST files, within a bound of memory.

The last value per key in a run, sorted, written as one file per family. Later runs override earlier
ones when they are ingested in order, so deletes stay in them as tombstones. It runs in a host or in
a worker process (`state_lib.restore.worker`), which is why it imports neither numpy nor pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Message

from state_lib.failpoints import failpoint
from state_lib.keys import stamped
from state_lib.specs import StoreSpec
from state_lib.stores.bytes_store import bytes_store
from state_lib.stores.memory.engine import MemoryEngine
from state_lib.stores.rocksdb.engine import write_sst
from state_lib.stores.rocksdb.options import RocksDBOptions

_ENTRY_OVERHEAD = 150
"""Bytes of Python objects per entry of a run, counted against its bound."""
Pairs = tuple[list[bytes], list[bytes | None]]


@dataclass(frozen=True)
class RunJob:
    """A range of one changelog partition that becomes runs.

    Attributes:
        topic, partition, start, end: records with ``start <= offset < end``.
        spec: of the store.
        clock: windows that are expired at it (ms) are left out.
        folder: for the files; they are named ``<name>-<number>-<family>.sst``.
        name: unique in the folder.
        run_bytes: memory bound.
        batch: records per read.
        options: of RocksDB.
    """

    topic: str
    partition: int
    start: int
    end: int
    spec: StoreSpec
    clock: int
    folder: Path
    name: str
    run_bytes: int
    batch: int
    options: RocksDBOptions

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {**asdict(self), "folder": str(self.folder)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunJob:
        """From plain data."""
        spec, options = StoreSpec(**data["spec"]), RocksDBOptions(**data["options"])
        return cls(**{**data, "folder": Path(data["folder"]), "spec": spec, "options": options})


@dataclass(frozen=True)
class Run:
    """A run on disk: family → file."""

    files: Mapping[str, str]


@dataclass(frozen=True)
class Batch:
    """So many records more were read; the next offset."""

    records: int
    offset: int


class Columns:
    """Turns records of one store's changelog into what the store keeps."""

    def __init__(self, spec: StoreSpec, clock: int) -> None:
        self._spec, self._clock = spec, clock
        # Only asked where an entry lies and whether it is live: nothing is kept in this engine.
        self._store = bytes_store(spec, MemoryEngine(Path(spec.name)))
        self.by_family = self._store.changes

    def of(self, messages: list[Message]) -> Pairs:
        """Keys and stored values, in log order; expired windows are left out."""
        keys = [m.key() or b"" for m in messages]
        if not self._spec.is_timestamped:
            return keys, [m.value() for m in messages]
        values = stamped((m.timestamp()[1] for m in messages), (m.value() for m in messages))
        if not self._spec.is_window:
            return keys, values
        live, clock = self._store.live, self._clock
        kept = [(k, v) for k, v in zip(keys, values, strict=True) if live(k, clock)]
        return [k for k, _ in kept], [v for _, v in kept]


def write_runs(job: RunJob, batches: Iterable[list[Message]]) -> Iterator[Batch | Run]:
    """Write a range's runs; yields what was read and written, in order."""
    columns = Columns(job.spec, job.clock)
    job.folder.mkdir(parents=True, exist_ok=True)
    run: dict[bytes, bytes | None] = {}
    held = number = 0
    for messages in batches:
        keys, values = columns.of(messages)
        run.update(zip(keys, values, strict=True))
        held += sum(map(len, keys)) + sum(map(len, filter(None, values)))
        held += _ENTRY_OVERHEAD * len(keys)
        yield Batch(len(messages), (messages[-1].offset() or 0) + 1)
        if held > job.run_bytes:
            yield _write(job, columns, run, number)
            run, held, number = {}, 0, number + 1
    if run:
        yield _write(job, columns, run, number)


def _write(job: RunJob, columns: Columns, run: dict[bytes, bytes | None], number: int) -> Run:
    keys = sorted(run)
    files = {}
    changes = columns.by_family(keys, list(map(run.__getitem__, keys)))
    for family, (family_keys, values) in changes.items():
        path = job.folder / f"{job.name}-{number}-{family}.sst"
        write_sst(path, family_keys, values, job.options)
        files[family] = str(path)
    failpoint("restore.after_run")
    return Run(files)
