"""Evaluates a user's expressions so that rows on which one fails are known.

An expression may raise: a cast that does not fit, a division by zero, ``raise_error``. Spark would
fail the batch, and every attempt of it again. (docs/adr/0013)
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

_VALUE = "v"


def attempt(rows: DataFrame, value: Column) -> Column:
    """The value in a struct, so that a null is told from a failure: null where it raises.

    Spark's own ``TryEval``, which its ``try_…`` functions are made of. Spark compiles it. Guard it
    by ``when``: what always is evaluated may be taken out of it if it is needed twice.
    """
    from pyspark.sql.classic.column import Column as ClassicColumn  # noqa: PLC0415

    jvm: Any = rows.sparkSession._jvm  # noqa: SLF001 - the way to the JVM that pyspark itself takes
    utils = jvm.org.apache.spark.sql.classic.ExpressionUtils
    inner = utils.expression(F.struct(value.alias(_VALUE))._jc)  # noqa: SLF001 - as above
    made = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(inner)
    return ClassicColumn(utils.column(made))


def value_of(attempted: Column) -> Column:
    """The value of an `attempt`; null if that failed."""
    return attempted.getField(_VALUE)
