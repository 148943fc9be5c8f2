"""Values between fastavro and Arrow: logical types of the reader's schema, not of the writer's.

fastavro converts values by the writer's logical types into Python objects, and ignores the
reader's. So in the writer's schema these types get other names, as its documentation suggests for
custom types: values stay plain numbers and bytes, and are converted to the reader's unit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from typing import Any

from fastavro.read import LOGICAL_READERS, SchemaResolutionError

from state_lib.executor.avro.schema import (
    LOCAL_MICROS,
    LOCAL_MILLIS,
    MICROS,
    MILLIS,
    Names,
    branch,
)

Convert = Callable[[Any], Any]
_OURS = "holdfast-"
_PER_S = {
    MILLIS: 1000, MICROS: 1_000_000, "timestamp-nanos": 1_000_000_000,
    LOCAL_MILLIS: 1000, LOCAL_MICROS: 1_000_000, "local-timestamp-nanos": 1_000_000_000,
}  # fmt: skip
_KINDS = {
    "date": ("int",),
    "decimal": ("bytes", "fixed"),
    **dict.fromkeys(_PER_S, ("long",)),
}
_DIGITS = Context(prec=200)


def ours(schema: Any) -> Any:
    """A writer's `normal` schema with our logical types in place of Avro's."""
    if isinstance(schema, list):
        return [ours(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = {key: value for key, value in schema.items() if key != "logicalType"}
    if logical := _logical(schema):
        made["logicalType"] = f"{_OURS}{logical}"
    if "fields" in schema:
        made["fields"] = [{**f, "type": ours(f["type"])} for f in schema["fields"]]
    for inner in ("items", "values"):
        if inner in schema:
            made[inner] = ours(schema[inner])
    return made


def _logical(schema: Any) -> str:
    """A schema's logical type if we support it and it is valid; else empty."""
    if not isinstance(schema, Mapping):
        return ""
    logical = str(schema.get("logicalType"))
    return logical if schema["type"] in _KINDS.get(logical, ()) else ""


def _resolved(data: Any, writer: Mapping[str, Any], reader: Any) -> Any:
    """A value of the writer's logical type in the unit of the reader's.

    Raises:
        SchemaResolutionError: the reader's is another type.
    """
    here, wanted = writer["logicalType"].removeprefix(_OURS), _logical(reader)
    if not wanted:
        return _promoted(data, reader)
    if here == wanted == "decimal":
        if writer.get("scale", 0) == reader.get("scale", 0):
            return data
    elif here == wanted:
        return data
    elif here in _PER_S and wanted in _PER_S and ("local" in here) == ("local" in wanted):
        return data * _PER_S[wanted] // _PER_S[here]
    raise SchemaResolutionError(f"{dict(writer)} is not {reader}")


def _promoted(data: Any, reader: Any) -> Any:
    """Promoted as fastavro does without logical types."""
    match reader["type"] if isinstance(reader, Mapping) else reader:
        case "float" | "double":
            return float(data)
        case "string":
            return data.decode()
    return data


_readers: dict[str, Any] = {
    f"{kind}-{_OURS}{name}": _resolved for name, kinds in _KINDS.items() for kind in kinds
}
LOGICAL_READERS.update(_readers)


def filled(schema: Any) -> Any:
    """A reader's schema, parsed, with defaults as fastavro reads values.

    JSON has bytes as text, one character for each.
    """
    names = Names()

    def walk(given: Any) -> None:
        one = names.of(given)
        if isinstance(one, list):
            for inner in one:
                walk(inner)
        elif isinstance(one, dict) and one is given:
            for field in one.get("fields", ()):
                walk(field["type"])
                if "default" in field:
                    field["default"] = _default(field["default"], field["type"], names)
            for inner in ("items", "values"):
                if inner in one:
                    walk(one[inner])

    walk(schema)
    return schema


def _default(value: Any, given: Any, names: Names) -> Any:  # noqa: PLR0911 - one for each type
    schema = names.of(given)
    if isinstance(schema, list):
        if value is None:
            return None
        one = branch(schema)
        return value if one is None else _default(value, one, names)
    kind = schema if isinstance(schema, str) else schema["type"]
    match kind:
        case "bytes" | "fixed" if isinstance(value, str):
            return value.encode("latin-1")
        case "float" | "double":
            return float(value)  # "NaN" and "Infinity" are text in JSON
        case "array":
            return [_default(one, schema["items"], names) for one in value]
        case "map":
            return {key: _default(one, schema["values"], names) for key, one in value.items()}
        case "record" | "error":
            return {
                f["name"]: _default(value.get(f["name"], f.get("default")), f["type"], names)
                for f in schema["fields"]
            }
    return value


def converter(schema: Any) -> Convert | None:
    """A conversion of a reader's values to those that Arrow takes; None if none is needed."""
    return _converter(schema, Names())


def _converter(given: Any, names: Names) -> Convert | None:  # noqa: PLR0911 - as above
    schema = names.of(given)
    if isinstance(schema, list):
        one = branch(schema)
        return None if one is None else _converter(one, names)
    if not isinstance(schema, Mapping):
        return None
    match schema["type"], schema.get("logicalType"):
        case (("record" | "error"), _):
            return _of_record(schema, names)
        case "array", _:
            inner = _converter(schema["items"], names)
            return None if inner is None else (lambda v: [_or_none(inner, one) for one in v])
        case "map", _:
            return _of_map(_converter(schema["values"], names))
        case "long", (logical) if logical in (MILLIS, LOCAL_MILLIS):
            return lambda v: v * 1000
        case (("bytes" | "fixed"), "decimal"):
            return _of_decimal(schema.get("scale", 0))
    return None


def _of_record(schema: Mapping[str, Any], names: Names) -> Convert | None:
    found = [(f["name"], _converter(f["type"], names)) for f in schema["fields"]]
    some = [(name, inner) for name, inner in found if inner is not None]
    if not some:
        return None

    def convert(value: dict[str, Any]) -> dict[str, Any]:
        changed = {name: inner(value[name]) for name, inner in some if value.get(name) is not None}
        return {**value, **changed}  # a copy: a default is shared by all rows

    return convert


def _of_map(inner: Convert | None) -> Convert:
    def convert(value: dict[str, Any]) -> list[tuple[str, Any]]:
        if inner is None:
            return list(value.items())
        return [(key, _or_none(inner, one)) for key, one in value.items()]

    return convert


def _of_decimal(scale: int) -> Convert:
    def convert(value: bytes) -> Decimal:
        return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale, _DIGITS)

    return convert


def _or_none(convert: Convert, value: Any) -> Any:
    return None if value is None else convert(value)
