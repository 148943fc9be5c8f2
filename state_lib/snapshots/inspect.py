"""Looks into a task's directory that nobody writes to: where it stands, its digests, its files.

`inspect_aside` does it in a process of its own (`state_lib.snapshots.aside`): digests are Python
all over, and a host has commits to make meanwhile.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import psutil

from state_lib.errors import HoldfastError, StateCorrupt, from_wire
from state_lib.snapshots.manifest import FileEntry
from state_lib.snapshots.parallel import Progress, sha256, silent
from state_lib.specs import Topology
from state_lib.stores.digest import store_digest
from state_lib.stores.rocksdb.options import RocksDBOptions
from state_lib.stores.task_stores import Checkpoint, TaskStores

_ASIDE = "state_lib.snapshots.aside"
_NICE = 10
_LOOK_S = 0.5
_NOT_STATE = ("LOG", "LOCK")
_TURN = threading.Lock()
"""One such process at a time for each host."""


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


def hashed(directory: Path, report: Progress = silent) -> list[FileEntry]:
    """Every file of the state: what RocksDB logs is none, and appears when someone looks."""
    paths = sorted(
        p for p in directory.rglob("*") if p.is_file() and not p.name.startswith(_NOT_STATE)
    )
    sizes = {p: p.stat().st_size for p in paths}
    done, files = 0, list[FileEntry]()
    for path in paths:
        files.append(FileEntry(path.relative_to(directory).as_posix(), sizes[path], sha256(path)))
        done += sizes[path]
        report("hash", done, sum(sizes.values()))
    return files


def inspect_aside(
    directory: Path, topology: Topology, report: Progress = silent
) -> tuple[Inspected, list[FileEntry]]:
    """`inspect` and `hashed` in another process, which makes way for others.

    What ``report`` raises ends it.
    """
    while not _TURN.acquire(timeout=_LOOK_S):
        report("queued", 0, 0)
    try:
        return _aside(directory, topology, report)
    finally:
        _TURN.release()


def _aside(
    directory: Path, topology: Topology, report: Progress
) -> tuple[Inspected, list[FileEntry]]:
    command = [sys.executable, "-m", _ASIDE, str(directory)]
    pipe = subprocess.PIPE
    with subprocess.Popen(  # noqa: S603 - our own module
        command, stdin=pipe, stdout=pipe, stderr=pipe, cwd="/"
    ) as child:
        with contextlib.suppress(psutil.Error, OSError):
            psutil.Process(child.pid).nice(_NICE)  # from here: its imports take half a second
        question: bytes | None = orjson.dumps(topology.to_json())
        progress: tuple[str, int, int] = ("hash", 0, 0)
        try:
            while True:
                report(*progress)
                try:
                    out, err = child.communicate(question, timeout=_LOOK_S)
                    break
                except subprocess.TimeoutExpired as waiting:
                    question = None
                    progress = _last_line(waiting.output or b"").get("progress", progress)
        except BaseException:
            child.kill()
            raise
    answer = _last_line(out)
    if "error" in answer:
        raise from_wire(answer["error"])
    if "files" not in answer:
        said = err.decode(errors="replace")[-2000:]
        raise HoldfastError(f"reading {directory} ended with code {child.returncode}: {said}")
    checkpoint = Checkpoint.from_bytes(orjson.dumps(answer["checkpoint"]))
    return Inspected(checkpoint, answer["digests"]), [FileEntry(*f) for f in answer["files"]]


def _last_line(output: bytes) -> dict[str, Any]:
    """The newest complete one; empty if there is none."""
    lines = output[: output.rfind(b"\n") + 1].splitlines()
    said: dict[str, Any] = orjson.loads(lines[-1]) if lines else {}
    return said


def main() -> None:
    """What runs aside.

    It reads a topology from standard input and writes lines of JSON: ``{"progress": [phase, done,
    total]}``, and last what was found, or ``{"error": …}``.
    """
    topology = Topology.from_json(orjson.loads(sys.stdin.buffer.read()))
    options = RocksDBOptions(block_cache_bytes=8 << 20, write_budget_bytes=1 << 20)
    directory = Path(sys.argv[1])
    try:
        files = hashed(directory, _tell)
        _tell("digest", 0, 0)
        found = inspect(directory, topology, options)
        answer = {
            "checkpoint": orjson.loads(found.checkpoint.to_bytes()),
            "digests": found.digests,
            "files": [[f.name, f.size, f.sha256] for f in files],
        }
    except HoldfastError as error:
        answer = {"error": error.to_wire()}
    _say(answer)


def _tell(phase: str, done: int, total: int) -> None:
    _say({"progress": [phase, done, total]})


def _say(line: Mapping[str, Any]) -> None:
    sys.stdout.buffer.write(orjson.dumps(line) + b"\n")
    sys.stdout.buffer.flush()
