"""What `Grouped.aggregate` can keep per key. Import as ``from state_lib import agg``.

Expressions are Spark SQL text over the stream's columns. Nulls are skipped as Spark SQL skips them.

>>> from state_lib import agg
>>> agg.sum("distance").expr
'distance'
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Op = Literal["count", "sum", "min", "max", "last"]
FieldType = Literal["int64", "float64", "utf8", "bool"]


@dataclass(frozen=True)
class Aggregate:
    """One field of an aggregation: an operation, its input and the type it is stored as."""

    op: Op
    expr: str | None
    type: FieldType


def count(expr: str | None = None) -> Aggregate:
    """Records, or those for which ``expr`` is not null."""
    return Aggregate("count", expr, "int64")


def sum(expr: str, type: Literal["int64", "float64"] = "int64") -> Aggregate:  # noqa: A001, A002
    """Sum; null until a non-null value was seen."""
    return Aggregate("sum", expr, type)


def min(expr: str, type: Literal["int64", "float64"] = "int64") -> Aggregate:  # noqa: A001, A002
    """Least value."""
    return Aggregate("min", expr, type)


def max(expr: str, type: Literal["int64", "float64"] = "int64") -> Aggregate:  # noqa: A001, A002
    """Greatest value."""
    return Aggregate("max", expr, type)


def last(expr: str, type: FieldType = "utf8") -> Aggregate:  # noqa: A002
    """Value of the latest record, also if it is null: by event time, partition, then offset.

    The order is total, so the answer does not depend on how the stream was cut into batches.
    """
    return Aggregate("last", expr, type)
