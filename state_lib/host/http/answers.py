"""Answers, as /openapi.json describes them, and how they are made of rows and markers.

Times are ms since 1970 where not said otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Field

from state_lib.errors import HoldfastError, SerdeError
from state_lib.host.reads import Page
from state_lib.keys import split_timestamp, split_window_key
from state_lib.protocol.json_forms import key_json, value_json
from state_lib.protocol.marker import Marker
from state_lib.serdes import serde_from
from state_lib.specs import StoreSpec
from state_lib.times import iso

StreamTime = Annotated[
    int, Field(description="Of the application: expiry is judged by it; -1: none yet.")
]


class Position(BaseModel):
    """The marker of a task: what the answer saw is the fold of its committed changelog here."""

    epoch: int = Field(description="Of the driver whose commit this is.")
    batch_number: int = Field(description="Number of the commit within the epoch.")
    positions: dict[str, dict[str, int]] = Field(
        description="Next offset to read, by source topic and partition."
    )
    stream_time_ms: StreamTime


Positions = Annotated[
    dict[str, Position],
    Field(description="By task, `<app>/<partition>`: every task that was read."),
]
Shown = Annotated[
    Any, Field(description="JSON of the store's serde; bytes in hexadecimal, NaN as text.")
]


class Failure(BaseModel):
    """Every error."""

    code: str = Field(description="Class of the error, such as `not-found` or `unavailable`.")
    message: str = Field(description="What is wrong and what to do next.")
    details: dict[str, Any] = Field(description="The values that the message names.")


class Entry(BaseModel):
    """One entry of a key-value store."""

    key: Shown
    value: Shown
    timestamp: int | None = Field(
        None, description="Event time of the last change; timestamped stores only."
    )


class Window(BaseModel):
    """One window of one key."""

    key: Shown
    window_start: int
    window_end: int
    window_start_time: str | None = Field(description="ISO 8601, UTC.")
    window_end_time: str | None = Field(description="ISO 8601, UTC.")
    value: Shown
    timestamp: int = Field(description="Event time of the last change.")


class Found(Entry):
    """The entry of a key."""

    app: str
    store: str
    task: str
    position: Positions


class _Page(BaseModel):
    app: str
    store: str
    position: Positions
    cursor: str | None = Field(
        description="Pass it to get the next page; null at the end. A page may be short, even "
        "empty, and have a next one."
    )


class EntryPage(_Page):
    """Entries by serialized key, over the tasks that this host owns."""

    entries: list[Entry]


class WindowPage(_Page):
    """Windows by segment of time, then key, then start, over the tasks that this host owns."""

    entries: list[Window]


class Count(BaseModel):
    """Live entries, exactly."""

    app: str
    store: str
    count: int
    by_task: dict[str, int]
    position: Positions


class App(BaseModel):
    """An application that this host knows."""

    app: str
    partitions: int
    stores: list[str]
    sources: list[str]
    outputs: list[str]
    tasks: list[str] = Field(description="Those that this host owns.")


class Apps(BaseModel):
    """All that this host knows: those whose driver has claimed tasks here."""

    host: str
    apps: list[App]


class Store(BaseModel):
    """A store, with what this host has of it."""

    name: str
    kind: str
    backend: str
    key_serde: Any
    value_serde: Any
    window_size_ms: int
    grace_ms: int
    retention_ms: int
    state: str = Field(description="Of a processor's store, what it holds; else empty.")
    segment_interval_ms: int
    approximate_entries: int = Field(description="Overwritten and deleted ones may still count.")
    size_bytes: int = Field(description="On disk and in memory.")


class Task(BaseModel):
    """A task of this host."""

    task: str
    partition: int
    host: str
    state: str = Field(
        description="`open`; `opening`; `restoring` while records are replayed; `quarantined` if "
        "its local state is lost and somebody must ask for a restore."
    )
    reason: str | None = Field(description="Why it is not open.")
    restoring: dict[str, dict[str, int]] = Field(
        description="By store whose replay has begun: first offset, end, next offset, records."
    )
    written_at: int | None = Field(description="Wall time of its last commit.")
    dropped: dict[str, int] = Field(description="Records that were not used, by reason.")
    position: Position | None


class Stores(BaseModel):
    """An application's stores and this host's tasks of it."""

    app: str
    host: str
    partitions: int
    stores: list[Store]
    tasks: list[Task]


class Restore(BaseModel):
    """A restore that somebody asked for."""

    task: str
    plan: str = Field(description="Id of its plan.")
    source: str = Field(description="`local`, `changelog` or the id of a snapshot.")
    state: str = Field(description="`running`, `done` or `failed`.")
    started_at: int
    seconds: float = Field(description="Since its start; once it has ended: how long it took.")
    fetched: dict[str, int] | None = Field(
        description="Of a snapshot: `done` and `total` in bytes; null before it begins."
    )
    stores: dict[str, dict[str, int]] = Field(
        description="By store whose replay has begun: first offset, end, next offset, records."
    )
    marker: dict[str, Any] | None = Field(description="Where the task stands since; null before.")
    error: Failure | None = Field(description="Why it failed.")


class Ready(BaseModel):
    """Whether every task of this host is open."""

    status: str
    waiting: int = Field(description="How many tasks are not open.")
    not_ready: dict[str, str] = Field(description="Task to reason; empty without the token.")


def position_of(marker: Marker) -> dict[str, Any]:
    """What of a marker stands in answers."""
    return {
        "epoch": marker.epoch,
        "batch_number": marker.batch_number,
        "positions": marker.positions.to_json(),
        "stream_time_ms": marker.stream_time_ms,
    }


def positions_of(markers: Mapping[str, Marker]) -> dict[str, Any]:
    """`position_of` every task."""
    return {name: position_of(marker) for name, marker in markers.items()}


class Shape:
    """Shows the entries of one store; makes its serdes once."""

    def __init__(self, app: str, spec: StoreSpec) -> None:
        self._app = app
        self._spec = spec
        self._keys = serde_from(spec.key_serde)
        self._values = serde_from(spec.value_serde)

    def page(self, page: Page) -> dict[str, Any]:
        """The body of a page."""
        return {
            "app": self._app,
            "store": self._spec.name,
            "entries": [self.entry(key, value) for key, value in page.rows],
            "cursor": None if page.cursor is None else page.cursor.to_text(),
            "position": positions_of(page.markers),
        }

    def entry(self, key: bytes, stored: bytes) -> dict[str, Any]:
        """One entry, with its window if it has one.

        Raises:
            HoldfastError: what is stored is not what the serdes say; a 500, for it is our side.
        """
        spec = self._spec
        window: dict[str, Any] = {}
        timestamp = None
        try:
            if spec.is_window:
                key, start, _ = split_window_key(key)
                window = _window(start, spec.window_size_ms)
            if spec.is_timestamped:
                stored, timestamp = split_timestamp(stored)
            value = value_json(spec.value_serde, self._values.deserialize(stored))
            shown = {"key": key_json(spec.key_serde, self._keys.deserialize(key)), **window}
        except SerdeError as error:
            raise HoldfastError(
                f"store {spec.name!r} of {self._app!r} holds an entry that its serdes cannot read: "
                f"{error.message}; query it with the job's own declaration of the store",
                app=self._app,
                store=spec.name,
                key=key.hex(),
            ) from error
        shown["value"] = value
        return shown if timestamp is None else {**shown, "timestamp": timestamp}


def _window(start: int, size: int) -> dict[str, Any]:
    return {
        "window_start": start,
        "window_end": start + size,
        "window_start_time": iso(start),
        "window_end_time": iso(start + size),
    }
