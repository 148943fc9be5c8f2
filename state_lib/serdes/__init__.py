"""Encodings of keys and values; none of them runs code from the data (never pickle)."""

from state_lib.serdes.base import Serde
from state_lib.serdes.registry import serde_from
from state_lib.serdes.scalar import Bytes, Json, Utf8
from state_lib.serdes.single import Float64, Int64
from state_lib.serdes.struct import Struct

__all__ = ["Bytes", "Float64", "Int64", "Json", "Serde", "Struct", "Utf8", "serde_from"]
