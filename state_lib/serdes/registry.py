"""From a description, as it stands in a topology, to the serde."""

from __future__ import annotations

from typing import Any

from state_lib.errors import ConfigurationError
from state_lib.serdes.base import Serde
from state_lib.serdes.kinds import FIXED, Fixed, digits_of, kind_from
from state_lib.serdes.scalar import Bytes, Json, Utf8
from state_lib.serdes.single import Float64, Int64, Single
from state_lib.serdes.struct import Struct

_PLAIN: dict[str, Any] = {
    "bytes": Bytes,
    "utf8": Utf8,
    "int64": Int64,
    "float64": Float64,
    "json": Json,
}


def serde_from(description: Any) -> Serde[Any]:
    """The serde that `Serde.describe` described.

    Args:
        description: ``"bytes"``, ``"utf8"``, ``"int64"``, ``"float64"``, ``"json"``, another
            type of as many bytes each (``"date"``, ``"decimal(10,2)"``, see
            `state_lib.serdes.kinds`) or ``{"struct": [[name, type], ...]}``.

    Raises:
        ConfigurationError: for anything else, listing what is known.
    """
    if isinstance(description, str) and description in _PLAIN:
        serde: Serde[Any] = _PLAIN[description]()
        return serde
    if isinstance(description, str) and (description in FIXED or digits_of(description)):
        kind = kind_from(description)
        if isinstance(kind, Fixed):
            return Single(kind)
    if isinstance(description, dict) and list(description) == ["struct"]:
        return Struct.from_pairs(description["struct"])
    raise ConfigurationError(
        f"unknown serde {description!r}; known: {sorted({*_PLAIN, *FIXED})}, decimal(p,s) and "
        '{"struct": [["name", "int64"], ...]}',
        serde=description,
    )
