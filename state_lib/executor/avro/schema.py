"""Avro schemas in a normal form, and the Spark columns of a reader's schema.

Columns are those of Spark's own ``from_avro``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from fastavro import parse_schema
from fastavro.schema import SchemaParseException, UnknownType
from pyspark.sql import types as T  # noqa: N812

from state_lib.errors import ConfigurationError
from state_lib.executor.avro.plain import PRIMITIVES, plain

BROKEN = (
    SchemaParseException, UnknownType, ValueError, KeyError, TypeError, AttributeError,
    RecursionError,
)  # fmt: skip
"""Errors for a text that is no Avro schema."""
MILLIS, MICROS = "timestamp-millis", "timestamp-micros"
LOCAL_MILLIS, LOCAL_MICROS = f"local-{MILLIS}", f"local-{MICROS}"
_TYPES: dict[str, T.DataType] = {
    "boolean": T.BooleanType(),
    "int": T.IntegerType(),
    "long": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "bytes": T.BinaryType(),
    "fixed": T.BinaryType(),
    "string": T.StringType(),
    "enum": T.StringType(),
}
_LOGICAL: dict[tuple[str, str], T.DataType] = {
    ("int", "date"): T.DateType(),
    ("long", MILLIS): T.TimestampType(),
    ("long", MICROS): T.TimestampType(),
    ("long", LOCAL_MILLIS): T.TimestampNTZType(),
    ("long", LOCAL_MICROS): T.TimestampNTZType(),
}
_WIDER: dict[frozenset[str], str] = {
    frozenset({"int", "long"}): "long",
    frozenset({"float", "double"}): "double",
}
_MOST_DIGITS = 38
_DOCUMENTATION = ("doc", "__fastavro_parsed", "__named_schemas")


def normal(texts: Sequence[str], *, written: bool = False) -> Any:
    """One schema as plain data: full names, referred types inlined, no documentation.

    Args:
        texts: JSON of the schema, after that of all schemas that it refers to, in an order in which
            each refers only to earlier ones.
        written: whether records were written by it; see `plain`.

    Raises:
        One of `BROKEN`: it is no Avro schema.
    """
    named: dict[str, Any] = {}
    given = [plain(orjson.loads(text), written=written) for text in texts]
    parsed = [parse_schema(one, named) for one in given][-1]
    return _within(parsed, named, set())


def pinned(texts: Sequence[str], where: str) -> str:
    """A reader's schema in the form that is kept in a topology.

    Raises:
        ConfigurationError: it is not the schema of a record, or Spark has no type for a field.
    """
    try:
        schema = normal(texts)
    except BROKEN as error:
        raise ConfigurationError(f"{where} is no Avro schema: {error}") from error
    text = orjson.dumps(schema, option=orjson.OPT_SORT_KEYS).decode()
    columns_of(text, where)
    return text


def columns_of(reader: str, where: str = "the schema") -> T.StructType:
    """The columns of a `pinned` schema, all nullable. Raises as `pinned`."""
    schema = orjson.loads(reader)
    if not isinstance(schema, dict) or schema["type"] not in ("record", "error"):
        raise ConfigurationError(
            f"{where} is no record: only the fields of one are columns. Read the topic as "
            "format='raw', or wrap the value in a record"
        )
    made: T.StructType = _Columns(where).of(schema, "")
    return made


def branch(union: Sequence[Any]) -> Any:
    """The type of a union's values that are not null; None if there are several."""
    others = [one for one in union if one not in ("null", {"type": "null"})]
    if len(others) == 1:
        return others[0]
    plain = [one.get("type") if isinstance(one, Mapping) else one for one in others]
    logical = any(isinstance(one, Mapping) and "logicalType" in one for one in others)
    return None if logical else _WIDER.get(frozenset(map(str, plain)))


class Names:
    """Named types of a `normal` schema, collected on the way: each is defined once."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def of(self, schema: Any) -> Any:
        """The type that a name stands for; other types as they are."""
        if isinstance(schema, Mapping) and "name" in schema:
            self._known[schema["name"]] = schema
        return self._known.get(schema, schema) if isinstance(schema, str) else schema


class _Columns:
    def __init__(self, where: str) -> None:
        self._where, self._names, self._open = where, Names(), list[str]()

    def of(self, given: Any, path: str) -> Any:
        schema = self._names.of(given)
        if isinstance(schema, list):
            one = branch(schema)
            if one is None:
                raise self._refused(path, "a union of several types")
            return self.of(one, path)
        kind = schema if isinstance(schema, str) else schema["type"]
        match kind:
            case "record" | "error":
                return self._record(schema, path)
            case "array":
                return T.ArrayType(self.of(schema["items"], f"{path}[]"))
            case "map":
                return T.MapType(T.StringType(), self.of(schema["values"], f"{path}{{}}"))
            case "null":
                raise self._refused(path, "always null")
        logical = schema.get("logicalType") if isinstance(schema, Mapping) else None
        if logical == "decimal" and kind in ("bytes", "fixed"):
            precision, scale = schema.get("precision", 0), schema.get("scale", 0)
            if not 0 < precision <= _MOST_DIGITS or not 0 <= scale <= precision:
                raise self._refused(path, f"a decimal of {precision} digits, {scale} of a fraction")
            return T.DecimalType(precision, scale)
        found = _LOGICAL.get((kind, str(logical)), _TYPES.get(kind))
        if found is None:
            raise self._refused(path, repr(given))
        return found

    def _record(self, schema: Mapping[str, Any], path: str) -> T.StructType:
        if schema["name"] in self._open:
            raise self._refused(path, f"{schema['name']} within itself")
        if not schema["fields"]:
            raise self._refused(path or schema["name"], "a record without fields")
        self._open.append(schema["name"])
        fields = [
            T.StructField(f["name"], self.of(f["type"], f"{path}.{f['name']}".lstrip(".")))
            for f in schema["fields"]
        ]
        self._open.pop()
        return T.StructType(fields)

    def _refused(self, path: str, what: str) -> ConfigurationError:
        return ConfigurationError(
            f"{self._where}: {path or 'it'} is {what}, for which Spark has no column. Give a "
            "schema to read by without that field, or with another type: app.stream(..., "
            "schema=...)"
        )


def _within(schema: Any, named: Mapping[str, Any], known: set[str]) -> Any:
    """A parsed schema in which each named type is defined where its name appears first."""
    if isinstance(schema, str):
        if schema in PRIMITIVES or schema in known:
            return schema
        return _within(named[schema], named, known)
    if isinstance(schema, list):
        return [_within(one, named, known) for one in schema]
    if "name" in schema:
        known.add(schema["name"])
    made = {key: value for key, value in schema.items() if key not in _DOCUMENTATION}
    if "fields" in schema:
        made["fields"] = [
            {
                **{key: value for key, value in field.items() if key not in _DOCUMENTATION},
                "type": _within(field["type"], named, known),
            }
            for field in schema["fields"]
        ]
    for inner in ("items", "values"):
        if inner in schema:
            made[inner] = _within(schema[inner], named, known)
    return made
