"""Spark's schemas from their JSON, without a JVM."""

from __future__ import annotations

from pyspark.sql.types import StructType, _parse_datatype_json_string


def struct_of(json: str) -> StructType:
    """A schema from Spark's JSON. Raises TypeError if it is no struct."""
    made = _parse_datatype_json_string(json)
    if not isinstance(made, StructType):
        raise TypeError(f"{made.simpleString()} is one type, no columns")
    return made
