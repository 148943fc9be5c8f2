"""``<state>/<app>/topology.json``: the applications that a host opens again when it starts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import orjson

from state_lib.errors import ConfigurationError, StateCorrupt, Unavailable
from state_lib.specs import Topology

_FILE = "topology.json"


def remembered(state_dir: Path) -> Iterator[str]:
    """Ids of the applications that a host remembers, sorted; their files may be unreadable."""
    return (file.parent.name for file in sorted(state_dir.glob(f"[!.]*/{_FILE}")))


def recall(folder: Path) -> Topology:
    """What `remember` wrote for the application of a folder.

    Raises:
        StateCorrupt: the file is torn, or another application's.
        ConfigurationError: it has another form: a newer Holdfast wrote it.
        Unavailable: the disk does not give it.
    """
    path = folder / _FILE
    try:
        topology = Topology.from_json(orjson.loads(path.read_bytes()))
    except OSError as error:
        why = f"{path} cannot be read: {error}; look at the disk"
        raise Unavailable(why, path=str(path)) from error
    except orjson.JSONDecodeError as error:
        raise StateCorrupt(_unusable(path, f"is torn ({error})"), path=str(path)) from error
    except ConfigurationError as error:
        why = f"does not fit: {error.message}; if a newer Holdfast wrote it, install that here"
        raise ConfigurationError(_unusable(path, why), path=str(path)) from error
    if topology.app != folder.name:
        raise StateCorrupt(_unusable(path, f"is of {topology.app!r}"), path=str(path))
    return topology


def remember(folder: Path, topology: Topology) -> None:
    """Write ``topology.json``, unless it says so already: a full disk must not keep a host down.

    Raises:
        Unavailable: it cannot be written.
    """
    path, content = folder / _FILE, orjson.dumps(topology.to_json())
    beside = path.with_suffix(".tmp")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.read_bytes() == content:
            return
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise Unavailable(
            f"application {topology.app!r} cannot be remembered in {folder}: {error}; free space "
            "there or make it writable, then it goes on by itself",
            app=topology.app,
            path=str(path),
        ) from error


def _unusable(path: Path, why: str) -> str:
    return (
        f"{path} {why}. Its application's tasks are not open here. Its driver's next claim writes "
        f"the file anew: start the job; or remove {path.parent} if its tasks live elsewhere now. "
        "It is looked at again by itself"
    )
