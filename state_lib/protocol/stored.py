"""Names of fields where they are written down: on disk, in Kafka, and on the wire.

Versions are mixed while hosts and drivers are upgraded, and bytes outlive them all: so a field that
has another name by now is written under the old one, and read by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STORED = {"batch_number": "n", "from_batch_number": "from_n", "stream_time_ms": "clock"}
"""Fields whose stored name is another one."""
_FIELDS = {stored: field for field, stored in STORED.items()}


def to_stored(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A dataclass's fields by their stored names, in the same order."""
    return {STORED.get(name, name): value for name, value in fields.items()}


def from_stored(data: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `to_stored`."""
    return {_FIELDS.get(name, name): value for name, value in data.items()}
