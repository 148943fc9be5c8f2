"""Tables as the command prints them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson
from rich.table import Table
from rich.text import Text

NO_APPLICATIONS = "no applications: start a job"


def table_or(none: str, rows: Sequence[Mapping[str, Any]]) -> Table | str:
    """A table where None is an empty cell; words where there are no rows."""
    if not rows:
        return none
    return table({k: "" if v is None else v for k, v in row.items()} for row in rows)


def table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """A table of rows that have the same names, numbers to the right."""
    rows, shown = list(rows), Table()
    columns = list(dict.fromkeys(name for row in rows for name in row))
    for name in columns:
        numbers = all(isinstance(row.get(name, 0), int | float) for row in rows)
        shown.add_column(_safe(name), justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        shown.add_row(*(_safe(cell(row.get(name, ""))) for name in columns))
    return shown


def cell(value: Any) -> str:
    """Text as it is, anything else as JSON."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _safe(text: str) -> Text:
    """Text of others: no markup, and no control characters that a terminal would obey."""
    return Text("".join(c if c.isprintable() else repr(c)[1:-1] for c in text))
