"""Names of fields where they are written down: on disk, in Kafka, and on the wire.

Hosts and drivers of several versions run while they are upgraded, and stored bytes are older still:
so a field that was renamed in the code is read and written under its old name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STORED = {"batch_number": "n", "from_batch_number": "from_n", "stream_time_ms": "clock"}
"""Field → its name where it is stored, if that is another one."""
_FIELDS = {stored: field for field, stored in STORED.items()}


def to_stored(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A dataclass's fields by their stored names, in the same order."""
    return {STORED.get(name, name): value for name, value in fields.items()}


def from_stored(data: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `to_stored`."""
    return {_FIELDS.get(name, name): value for name, value in data.items()}
