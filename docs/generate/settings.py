"""Every setting, as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ByteSize, SecretStr
from pydantic.fields import FieldInfo

from state_lib.config import FILE, PREFIX
from state_lib.settings import PROPERTIES, SECTIONS

INTRO = f"""# Settings

A flag wins over a `{PREFIX}*` variable, and that over `{FILE}` in the working directory.
`holdfast config` shows what counts now and where it comes from. A name in the file that is no
setting, or one in another's section, is refused: see [Configuration](../how-to/configuration.md).

Defaults that depend on the machine, such as the number of restore workers, are those of the machine
that made this page.
"""
HEAD = f"""
| variable | in `{FILE}` | type | default | meaning |
|---|---|---|---|---|
"""


def page() -> str:
    """A table for each section, in the order of their declaration."""
    return INTRO + "".join(_section(name, model) for name, model in SECTIONS.items())


def _section(name: str, model: type[BaseModel]) -> str:
    rows = [_row(field, found) for field, found in model.model_fields.items()]
    return f"\n## `[{name}]`\n{HEAD}" + "\n".join(rows) + "\n"


def _row(name: str, field: FieldInfo) -> str:
    default = _default(field)
    cells = (
        f"`{PREFIX}{name.upper()}`",
        "their own names" if name in PROPERTIES.values() else f"`{name}`",
        _type(field.annotation),
        f"`{default}`" if default else "",
        field.description or "",
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return value.human_readable() if isinstance(value, ByteSize) else str(value)


def _type(annotation: Any) -> str:
    """In words of people: None is told by the empty default."""
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{one}`" for one in get_args(annotation))
    if get_origin(annotation) is dict:
        return "properties; JSON in the variable"
    parts = [one for one in get_args(annotation) if one is not type(None)]
    if parts:
        return _type(parts[0])
    words: dict[Any, str] = {
        bool: "true or false",
        ByteSize: "bytes",
        float: "number",
        int: "whole number",
        Path: "path",
        SecretStr: "secret",
        str: "text",
    }
    return words[annotation]
