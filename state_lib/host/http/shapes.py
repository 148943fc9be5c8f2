"""From rows and markers to the bodies of answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from state_lib.errors import HoldfastError, SerdeError
from state_lib.host.http.reads import Page
from state_lib.host.json_forms import key_json, value_json
from state_lib.keys import split_window_key
from state_lib.marker import Marker
from state_lib.serdes import serde_from
from state_lib.specs import StoreSpec
from state_lib.stores.values import split_timestamp
from state_lib.times import iso


def position_of(marker: Marker) -> dict[str, Any]:
    """What of a marker stands in answers."""
    return {
        "epoch": marker.epoch,
        "n": marker.n,
        "positions": marker.positions,
        "clock": marker.clock,
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
