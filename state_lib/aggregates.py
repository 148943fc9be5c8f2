"""What `Grouped.aggregate` can keep per key. Import as ``from state_lib import agg``.

Expressions are Spark SQL text over the stream's columns. Nulls are skipped as Spark SQL skips them.

What is kept does not depend on how the stream was cut into batches, to the byte (sums of floats
only up to rounding):

- A value is cast to its field's type as ANSI SQL casts (a fraction is cut off). One that does not
  fit is no value of another: its record is a dead letter, ``failed:<store>.<field>``.
- Sums of int64 wrap around at 2^63, as Java's and numpy's do. No other answer is the same at every
  cut: a sum that is beyond 2^63 for a moment may be back in the next. Every commit that wraps a sum
  adds one to the count ``wrapped:<store>.<field>``, beside those of dropped records.
- In `min` and `max`, and in sums, NaN is NaN and greater than every number, and -0.0 is 0.0.
- Float sums are added in the order in which batches bring them, and differ by rounding.

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
    """Sum; null until a non-null value was seen. int64 wraps, float64 rounds: see above."""
    return Aggregate("sum", expr, type)


def min(expr: str, type: Literal["int64", "float64"] = "int64") -> Aggregate:  # noqa: A001, A002
    """Least value; NaN only if there is no other."""
    return Aggregate("min", expr, type)


def max(expr: str, type: Literal["int64", "float64"] = "int64") -> Aggregate:  # noqa: A001, A002
    """Greatest value; NaN if there is one."""
    return Aggregate("max", expr, type)


def last(expr: str, type: FieldType = "utf8") -> Aggregate:  # noqa: A002
    """Value of the latest record, also if it is null: by event time, partition, then offset.

    Of the rows that a step explodes a record to, the last one is the latest. The order is total,
    so the answer does not depend on how the stream was cut into batches.
    """
    return Aggregate("last", expr, type)
