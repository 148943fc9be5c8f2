"""Sorted runs: from a range of a changelog to SST files, within a bound of memory.

The last value per key in a run, sorted, written as one file per family. Later runs override earlier
ones when they are ingested in order, so deletes stay in them as tombstones. It runs in a host or in
a worker process (`state_lib.restore.worker`), which is why it imports neither numpy nor pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import compress, islice
from operator import itemgetter, ne
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

_ENTRY_OVERHEAD = 170
"""Bytes of Python objects per entry of a run, also while it is sorted [tried]."""
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
        # Used only for entries' families and liveness: nothing is stored in this engine.
        self._store = bytes_store(spec, MemoryEngine(Path(spec.name)))
        self.by_family = self._store.changes

    def of(self, messages: list[Message]) -> Pairs:
        """Keys and stored values, in log order; expired windows are left out."""
        keys = [key or b"" for key in map(Message.key, messages)]
        values = map(Message.value, messages)
        if not self._spec.is_timestamped:
            return keys, list(values)
        times = map(itemgetter(1), map(Message.timestamp, messages))
        stored = stamped(times, values)
        if not self._spec.is_window:
            return keys, stored
        live = [self._store.live(key, self._clock) for key in keys]
        return list(compress(keys, live)), list(compress(stored, live))


def write_runs(job: RunJob, batches: Iterable[list[Message]]) -> Iterator[Batch | Run]:
    """Write a range's runs; yields what was read and written, in order."""
    columns = Columns(job.spec, job.clock)
    job.folder.mkdir(parents=True, exist_ok=True)
    keys: list[bytes] = []
    values: list[bytes | None] = []
    held = number = 0
    for messages in batches:
        more = columns.of(messages)
        keys += more[0]
        values += more[1]
        held += _held(*more)
        yield Batch(len(messages), (messages[-1].offset() or 0) + 1)
        if held > job.run_bytes:
            keys, values = newest(keys, values)
            held = _held(keys, values)
            if held > job.run_bytes // 2:  # else most records were updates of the same keys: go on
                yield _write(job, columns, keys, values, number)
                keys, values, held, number = [], [], 0, number + 1
    if keys:
        yield _write(job, columns, *newest(keys, values), number)


def newest(keys: list[bytes], values: list[bytes | None]) -> Pairs:
    """Sorted by key; of the values of one key the last.

    No dict on the way: its look-ups in sorted order miss the processor's caches [tried: 130 to 350
    ns an entry, a dict 300 to 440, with commits of 100,000 and 5,000 sorted keys].
    """
    order = sorted(range(len(keys)), key=keys.__getitem__)  # stable: log order within a key
    keys = list(map(keys.__getitem__, order))
    last = [*map(ne, keys, islice(keys, 1, None)), True]
    return list(compress(keys, last)), list(map(values.__getitem__, compress(order, last)))


def _held(keys: list[bytes], values: list[bytes | None]) -> int:
    """Bytes of memory that these entries of a run take until it is written."""
    payload = sum(map(len, keys)) + sum(map(len, filter(None, values)))
    return payload + _ENTRY_OVERHEAD * len(keys)


def _write(
    job: RunJob, columns: Columns, keys: list[bytes], values: list[bytes | None], number: int
) -> Run:
    files = {}
    for family, (family_keys, family_values) in columns.by_family(keys, values).items():
        path = job.folder / f"{job.name}-{number}-{family}.sst"
        write_sst(path, family_keys, family_values, job.options)
        files[family] = str(path)
    failpoint("restore.after_run")
    return Run(files)
