"""Looks into a task's directory that nobody writes to: where it stands, and its digests.

``python -m state_lib.snapshots.inspect DIRECTORY`` with a topology on standard input does it in a
process of its own: digests are Python all over, and a host has commits to make meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

from state_lib.errors import HoldfastError, StateCorrupt, from_wire
from state_lib.snapshots.parallel import Progress, silent
from state_lib.specs import Topology
from state_lib.stores.digest import store_digest
from state_lib.stores.rocksdb.options import RocksDBOptions
from state_lib.stores.task_stores import Checkpoint, TaskStores

_NICE = 10
_LOOK_S = 0.5


@dataclass(frozen=True)
class Inspected:
    """What a directory holds; ``digests`` are those of what is live at the marker's stream time."""

    checkpoint: Checkpoint
    digests: Mapping[str, str]


def inspect(directory: Path, topology: Topology, options: RocksDBOptions) -> Inspected:
    """Read a checkpoint or a fetched snapshot; memory stores only if it holds their entries.

    Raises:
        StateCorrupt: it cannot be read, or holds no checkpoint.
    """
    stores = TaskStores(topology, directory, options, read_only=True)
    try:
        checkpoint = stores.checkpoint()
        if checkpoint is None:
            raise StateCorrupt(f"{directory} holds no checkpoint", path=str(directory))
        clock = checkpoint.marker.stream_time_ms
        digests = {
            name: str(store_digest(store, clock))
            for name, store in stores.stores.items()
            if stores.specs[name].backend != "memory" or stores.memory.path.is_dir()
        }
        return Inspected(checkpoint, digests)
    finally:
        stores.close()


def inspect_aside(directory: Path, topology: Topology, report: Progress = silent) -> Inspected:
    """`inspect` in another process, of low priority. What ``report`` raises ends it."""
    command = [sys.executable, "-m", __name__, str(directory)]
    pipe = subprocess.PIPE
    with subprocess.Popen(  # noqa: S603 - our own module
        command, stdin=pipe, stdout=pipe, stderr=pipe, cwd="/"
    ) as child:
        question: bytes | None = orjson.dumps(topology.to_json())
        try:
            while True:
                report("digest", 0, 0)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    out, err = child.communicate(question, timeout=_LOOK_S)
                    break
                question = None
        except BaseException:
            child.kill()
            raise
    try:
        answer = orjson.loads(out)
    except orjson.JSONDecodeError as error:
        raise HoldfastError(
            f"reading {directory} ended with code {child.returncode}: "
            f"{err.decode(errors='replace')[-2000:]}"
        ) from error
    if "error" in answer:
        raise from_wire(answer["error"])
    return Inspected(Checkpoint.from_bytes(orjson.dumps(answer["checkpoint"])), answer["digests"])


def main() -> None:
    """See the module."""
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    topology = Topology.from_json(orjson.loads(sys.stdin.buffer.read()))
    options = RocksDBOptions(block_cache_bytes=8 << 20, write_budget_bytes=1 << 20)
    try:
        found = inspect(Path(sys.argv[1]), topology, options)
        answer = {
            "checkpoint": orjson.loads(found.checkpoint.to_bytes()),
            "digests": found.digests,
        }
    except HoldfastError as error:
        answer = {"error": error.to_wire()}
    sys.stdout.buffer.write(orjson.dumps(answer))


if __name__ == "__main__":
    main()
