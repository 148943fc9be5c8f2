"""A task's directory: what is in it, how it is set aside, how a built one takes its place.

Beside ``<partition>`` there may be ``<partition>.restoring`` (being built), ``.aside-<time>`` (not
to be used again, kept until what replaces it is verified) and ``.lock`` (a restore runs).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path

from state_lib.errors import StateCorrupt
from state_lib.failpoints import failpoint
from state_lib.restore.facts import LocalFacts, size_of
from state_lib.specs import Topology
from state_lib.stores.rocksdb.options import RocksDBOptions
from state_lib.stores.task_stores import TaskStores

_REASON = "why-set-aside.txt"
_WHOLE = "restored"
"""Written last into a directory that was built: without it, it is never put in place. It holds the
id of the plan that somebody had asked for, if one had."""


@dataclass
class Local:
    """A directory that was looked at: open stores, or the reason why there are none."""

    facts: LocalFacts
    stores: TaskStores | None = None

    def close(self) -> None:
        """Close the stores, if they are open."""
        if self.stores is not None:
            self.stores.close()
            self.stores = None

    def refused(self, why: str) -> None:
        """Close it and remember why it cannot be used, although it could be opened."""
        self.close()
        self.facts = replace(self.facts, checkpoint=None, why=why)


def look(topology: Topology, path: Path, options: RocksDBOptions) -> Local:
    """Open the directory if it can be opened. A build that was whole takes its place first.

    Raises:
        Unavailable: another process has it open, or the disk is full.
    """
    building = building_of(path)
    if not path.exists() and (building / _WHOLE).exists():
        building.rename(path)
    facts = LocalFacts(size_bytes=size_of([path]), aside_bytes=size_of(asides(path)))
    if not path.exists():
        return Local(replace(facts, why=f"there is no directory {path}{_last_reason(path)}"))
    stores = None
    try:
        stores = TaskStores(topology, path, options)
        return Local(replace(facts, checkpoint=stores.checkpoint()), stores)
    except StateCorrupt as error:
        if stores is not None:
            stores.close()
        return Local(replace(facts, why=error.message))
    except BaseException:
        if stores is not None:
            stores.close()
        raise


def building_of(path: Path) -> Path:
    """Where a directory is built before it takes its place."""
    return path.with_name(f"{path.name}.restoring")


def set_aside(path: Path, why: str) -> Path:
    """Rename a directory that must not be used again; returns its new place."""
    aside = path.with_name(f"{path.name}.aside-{time.time_ns()}")
    path.rename(aside)
    with contextlib.suppress(OSError):  # full disk; the log has the reason, too
        (aside / _REASON).write_text(why)
    return aside


def mark_whole(building: Path, plan: str = "") -> None:
    """What was built is all there, and flushed; ``plan`` is the id of the one that asked for it."""
    with (building / _WHOLE).open("w") as mark:
        mark.write(plan)
        mark.flush()
        os.fsync(mark.fileno())


def built_by(path: Path) -> str | None:
    """Id of the plan that a directory was built by; None if nobody had asked for it."""
    try:
        return (path / _WHOLE).read_text() or None
    except OSError:
        return None


def swap_in(path: Path, why: str) -> None:
    """Put the built directory in its place; what stands there is set aside."""
    if path.exists():
        failpoint("restore.before_swap")
        set_aside(path, why)
    failpoint("restore.during_swap")
    building_of(path).rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    failpoint("restore.after_swap")


def asides(path: Path) -> list[Path]:
    """What was set aside, oldest first."""
    return sorted(path.parent.glob(f"{path.name}.aside-*"))


def remove_asides(path: Path) -> None:
    """Remove what was set aside: what replaced it is verified."""
    for aside in asides(path):
        failpoint("restore.before_cleanup")
        shutil.rmtree(aside, ignore_errors=True)


def _last_reason(path: Path) -> str:
    for aside in reversed(asides(path)):
        with contextlib.suppress(OSError):
            return f" (set aside: {(aside / _REASON).read_text()})"
    return ""
