"""Applications with one processor over rows of text, and the states that it asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import functions as F  # noqa: N812

from state_lib import Application
from tests.support.processors import HOUR, Doing

T0 = 1_700_000_000_000 // HOUR * HOUR
OUT = "k STRING, x BIGINT"
Build = Callable[[Application], None]


def value(schema: str, ttl: int | None = None) -> Any:
    return lambda handle, name: handle.getValueState(name, schema, ttl)


def listed(schema: str, ttl: int | None = None) -> Any:
    return lambda handle, name: handle.getListState(name, schema, ttl)


def mapped(keys: str, schema: str, ttl: int | None = None) -> Any:
    return lambda handle, name: handle.getMapState(name, keys, schema, ttl)


def doing(processor: Doing, mode: str = "EventTime", out: str = OUT, **more: Any) -> Build:
    """An application with one processor over rows of text: ``key,number``."""

    def build(app: Application) -> None:
        rows = app.stream("lines", format="text")
        parts = F.split("value", ",")
        rows = rows.select(parts[0].alias("k"), parts[1].cast("bigint").alias("x"))
        rows.groupBy("k").transformWithState(processor, out, "Append", mode, name="p", **more).to(
            "out"
        )

    return build
