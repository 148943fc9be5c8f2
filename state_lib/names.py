"""Names that become topics, directories and URLs: checked once, where they enter."""

from __future__ import annotations

import re

from state_lib.errors import InvalidName

RESERVED = "__hf_"
"""Begins the names of columns that Holdfast adds to a stream's rows."""
_LEGAL = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")


def check_name(kind: str, name: str) -> str:
    """Return ``name`` if it is legal as part of a Kafka topic and as one path segment.

    Letters, digits, ``.``, ``_`` and ``-``; not starting with a dot; at most 100 characters, so
    that ``<app>-<store>-changelog`` stays within Kafka's 249.

    Raises:
        InvalidName: naming the kind and the value seen.
    """
    if not _LEGAL.fullmatch(name):
        raise InvalidName(
            f"{kind} name {name!r} is not usable: take 1 to 100 letters, digits, '.', '_' or '-', "
            "not starting with '.'",
            kind=kind,
            name=name,
        )
    return name


def check_column(name: str) -> str:
    """Return ``name`` if a stream's rows may have a column of that name.

    Raises:
        InvalidName: it begins as ours do.
    """
    if name.lower().startswith(RESERVED):
        raise InvalidName(
            f"column name {name!r} is not usable: {RESERVED!r} begins those of Holdfast",
            kind="column",
            name=name,
        )
    return name
