"""Every setting, as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import ByteSize, SecretStr
from pydantic.fields import FieldInfo

from state_lib.config import FILE, PREFIX, Settings

INTRO = f"""# Settings

A flag wins over a `{PREFIX}*` variable, and that over `{FILE}` in the working directory.
`holdfast config` shows what counts now and where it comes from. A name in the file that is no
setting is refused.

Defaults that depend on the machine, such as the number of restore workers, are those of the machine
that made this page.

| variable | in `{FILE}` | type | default | meaning |
|---|---|---|---|---|
"""


def page() -> str:
    """A table of all settings, in the order of their declaration."""
    rows = [_row(name, field) for name, field in Settings.model_fields.items()]
    return INTRO + "\n".join(rows) + "\n"


def _row(name: str, field: FieldInfo) -> str:
    default = _default(field)
    cells = (
        f"`{PREFIX}{name.upper()}`",
        f"`{name}`",
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
