"""From a description, as it stands in a topology, to the serde."""

from __future__ import annotations

from typing import Any

from state_lib.errors import ConfigurationError
from state_lib.serdes.base import Serde
from state_lib.serdes.scalar import Bytes, Float64, Int64, Json, Utf8
from state_lib.serdes.struct import Struct

_PLAIN: dict[str, Any] = {kind.name: kind for kind in (Bytes, Utf8, Int64, Float64, Json)}


def serde_from(description: Any) -> Serde[Any]:
    """The serde that `Serde.describe` described.

    Args:
        description: ``"bytes"``, ``"utf8"``, ``"int64"``, ``"float64"``, ``"json"`` or
            ``{"struct": [[name, type], ...]}``.

    Raises:
        ConfigurationError: for anything else, listing what is known.
    """
    if isinstance(description, str) and description in _PLAIN:
        serde: Serde[Any] = _PLAIN[description]()
        return serde
    if isinstance(description, dict) and list(description) == ["struct"]:
        return Struct.from_pairs(description["struct"])
    raise ConfigurationError(
        f"unknown serde {description!r}; known: {sorted(_PLAIN)} and "
        '{"struct": [["name", "int64"], ...]}',
        serde=description,
    )
