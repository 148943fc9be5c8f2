"""Schemas as fastavro takes them: it refuses some that do not matter to readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PRIMITIVES = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}


def plain(schema: Any, *, written: bool) -> Any:
    """A schema as plain data, with primitive types by name alone, without properties.

    ``written``: records were written by it. Then defaults are dropped (older registries accepted
    wrong ones), and an invalid logical type is ignored, as the specification has it.
    """
    if isinstance(schema, list):
        return [plain(one, written=written) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = {**schema, "type": plain(schema["type"], written=written)}
    if written:
        made.pop("default", None)  # of an enum
        if made.get("logicalType") == "decimal" and not _is_decimal(made):
            del made["logicalType"]
    if "logicalType" not in made and made["type"] in _NAMES:
        return made["type"]
    if "fields" in made:
        made["fields"] = [_field(one, written=written) for one in made["fields"]]
    for inner in ("items", "values"):
        if inner in made:
            made[inner] = plain(made[inner], written=written)
    return made


_NAMES = sorted(PRIMITIVES)


def _field(field: Mapping[str, Any], *, written: bool) -> dict[str, Any]:
    made = {**field, "type": plain(field["type"], written=written)}
    if written:
        made.pop("default", None)
    return made


def _is_decimal(schema: Mapping[str, Any]) -> bool:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int):
        return False
    if schema["type"] == "fixed":
        most = len(str(2 ** (8 * int(schema["size"]) - 1) - 1)) - 1 if schema["size"] else 0
    else:
        most = precision if schema["type"] == "bytes" else 0
    return 0 < precision <= most and 0 <= scale <= precision
