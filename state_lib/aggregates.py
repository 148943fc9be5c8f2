"""What `KGroupedStream.agg` can keep per key. Import as ``from state_lib import agg``.

Each takes a `Column`, or Spark SQL text over the stream's columns. Nulls are skipped as Spark SQL
skips them. Types are Spark's: whole numbers are kept as int64, fractions as float64, text, bytes,
booleans, dates, timestamps and decimals as they are. `sum` takes numbers and decimals, `min` and
`max` all of these and structs of them, `last` arrays and maps of them as well.

What is kept does not depend on how the stream was cut into batches, to the byte (sums of floats
only up to rounding):

- A row on which an expression fails is a dead letter, ``failed:<store>.<field>``: a cast that does
  not fit, for example.
- Sums of int64 wrap around at 2^63, as Java's and numpy's do. No other answer is the same at every
  cut: a sum that is beyond 2^63 for a moment may be back in the next. Every commit that wraps a sum
  adds one to the count ``wrapped:<store>.<field>``, beside those of dropped records. Sums of
  decimals are exact, of 38 digits, and wrap in the same way beyond them.
- In `min` and `max`, and in sums, NaN is NaN and greater than every number, and -0.0 is 0.0.
- Float sums are added in the order in which batches bring them, and differ by rounding.

>>> from state_lib import agg
>>> agg.sum("distance").value
'distance'
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from state_lib.declaration import Op
from state_lib.errors import NoSuchVerb

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True, eq=False)
class Aggregate:
    """One field of an aggregation: an operation and its input.

    ``condition``: the input says whether a row counts.
    """

    op: Op
    value: Column | str | None
    condition: bool = False


def count(value: Column | str | None = None) -> Aggregate:
    """Rows, or those for which ``value`` is not null; ``*`` counts rows, as in SQL."""
    return Aggregate("count", None if isinstance(value, str) and value == "*" else value)


def count_if(condition: Column | str) -> Aggregate:
    """Rows for which the condition is true."""
    return Aggregate("count", condition, condition=True)


def sum(value: Column | str) -> Aggregate:  # noqa: A001 - as PySpark calls it
    """Sum; null until a non-null value was seen. Whole numbers wrap, fractions round: see above."""
    return Aggregate("sum", value)


def min(value: Column | str) -> Aggregate:  # noqa: A001 - as above
    """Least value; NaN only if there is no other. Text sorts by its bytes, false before true."""
    return Aggregate("min", value)


def max(value: Column | str) -> Aggregate:  # noqa: A001 - as above
    """Greatest value; NaN if there is one. Otherwise as `min`."""
    return Aggregate("max", value)


def last(value: Column | str) -> Aggregate:
    """Value of the latest record, also if it is null: by event time, partition, then offset.

    Of the rows that a step explodes a record to, the last one is the latest. The order is total,
    so the answer does not depend on how the stream was cut into batches.
    """
    return Aggregate("last", value)


if not TYPE_CHECKING:  # with it, type checkers would accept any name

    def __getattr__(name: str) -> object:
        """Refuse what is no aggregate, as `state_lib.verbs` refuses what is no verb."""
        if name.startswith("_"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        raise NoSuchVerb(
            f"there is no aggregate {name!r}; there are count, count_if, sum, min, max, last. What "
            "none of them says, a function may: groupBy(...).aggregate(...). A mean is a sum by a "
            "count: keep both",
            name=name,
        )
