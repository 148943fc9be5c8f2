"""What a task does if its changelogs, its writer or its stores cannot be trusted any more."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import structlog

from state_lib.changelog.log import Writer
from state_lib.changelog.writer import OutcomeUnknown, WriterOutdated
from state_lib.errors import (
    HoldfastError,
    KafkaRefused,
    LogLost,
    NotOwner,
    StateCorrupt,
    TooLarge,
    Unavailable,
)
from state_lib.protocol.marker import Marker
from state_lib.restore.local import set_aside
from state_lib.restore.source import log_lost
from state_lib.specs import Topology
from state_lib.task.frames import let_go
from state_lib.task.held import Held
from state_lib.task.opening import write_marker

log = structlog.get_logger(__name__)


def check_cut(
    topology: Topology,
    partition: int,
    offsets: Mapping[str, list],  # type: ignore[type-arg]
    cut: Mapping[str, list[int]],
) -> None:
    """Refuse a commit below the log's known end: the topic is another one then.

    Args:
        topology: of the application.
        partition: of the task.
        offsets: changelog topic → its id, and the end offset of committed records.
        cut: changelog topic → end offset and count of the commit's records.

    Raises:
        LogLost: the commit begins before the end of committed records.
    """
    for topic, (end, count) in cut.items():
        begin, committed = end - count, offsets[topic][1]
        if begin < committed:
            why = f"this commit began at offset {begin}, and {committed} was committed"
            raise log_lost(topology, partition, topic, why)


def remember_loss(
    writer: Writer, topology: Topology, partition: int, marker: Marker, error: LogLost
) -> None:
    """Write the loss to a marker, as aborted records have moved the new log's end."""
    topic = str(error.details["topic"])
    try:
        doubting = marker.doubting(marker.owner, [topic])
        write_marker(writer, topology, partition, doubting)
    except HoldfastError as failure:
        name = f"{topology.app}/{partition}"
        log.error("loss is not remembered", task=name, topic=topic, why=failure.message)


@contextlib.contextmanager
def closing_in_doubt(held: Held, path: Path, is_still_ours: Callable[[], bool]) -> Iterator[None]:
    """Close the task after an error that leaves writer or stores in an unknown state.

    Args:
        held: the task's resources.
        path: its directory.
        is_still_ours: whether the task's last marker names this host.

    Raises:
        Unavailable: the task is to be opened again, or the request to be repeated.
        KafkaRefused, LogLost, TooLarge, NotOwner: unchanged.
    """
    stores = held.stores
    try:
        yield
    except StateCorrupt as error:
        log.error("state is corrupt: set aside and rebuilt", task=held.name, why=error.message)
        with held.commit_lock:
            # Unless another thread has met the error too, and the task was opened again since.
            if held.stores is None or held.stores is stores:
                let_go(error)
                held.close()
                if path.exists():
                    set_aside(path, error.message)
        raise Unavailable(f"{held.name}: {error.message}", task=held.name) from error
    except (OutcomeUnknown, WriterOutdated) as error:
        held.close()
        raise Unavailable(error.message, task=held.name) from error
    except (KafkaRefused, LogLost, TooLarge):
        held.close()  # its writer may be unusable
        raise
    except OSError as error:  # the disk's; if the commit stands, the task is closed already
        why = f"{held.name}: {error}; look at the disk under {path}"
        raise Unavailable(why, task=held.name) from error
    except NotOwner as error:
        held.close()
        if is_still_ours():
            why = f"{error.message}, but no other host has taken {held.name}: it is opened again"
            raise Unavailable(why, task=held.name) from error
        raise
