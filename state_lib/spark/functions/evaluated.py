"""Evaluates calls of Python functions before the step that they stand in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.udf import _wrap_function
from pyspark.util import PythonEvalType

from state_lib.declaration import Call, Expression
from state_lib.executor.caught import ERROR, result_type
from state_lib.executor.process.arguments import without_zone
from state_lib.spark.attempts import attempt, value_of


def with_calls(rows: DataFrame, calls: Sequence[Call], usable: Column) -> DataFrame:
    """Rows with a column for each call, on those that are ``usable``.

    Arguments are tried first. Where one fails, or is none that Python can be given, nothing is
    called.
    """
    by_level = sorted(calls, key=lambda call: call.level)
    for _, some in groupby(by_level, key=lambda call: call.level):
        rows = _with_some(rows, list(some), usable)
    return rows


def _with_some(rows: DataFrame, calls: list[Call], usable: Column) -> DataFrame:
    tried: dict[str, Column] = {}
    made: dict[str, Column] = {}
    for call in calls:
        fine, values = usable, list[Column]()
        for number, (arg, kind) in enumerate(zip(call.args, call.takes, strict=True)):
            value = _column_of(arg)
            if not arg.plain:
                name = f"{call.column}_{number}"
                tried[name] = F.when(usable, attempt(rows, value))
                fine, value = fine & F.col(name).isNotNull(), value_of(F.col(name))
            if (valid := is_givable(value, kind)) is not None:
                fine = fine & F.coalesce(valid, F.lit(True))  # noqa: FBT003
            zoneless = without_zone(kind) if call.kind == "row" else None
            values.append(value if zoneless is None else value.cast(zoneless))
        # Arrow hands over what is not used as well, and must be able to.
        made[call.column] = _called(rows, call, [fine, *(F.when(fine, v) for v in values)])
    if not tried:
        return rows.withColumns(made)
    return rows.withColumns(tried).withColumns(made).drop(*tried)


def errors_of(calls: Iterable[Call]) -> Column:
    """What the first of calls that raised has said; null if none did."""
    said = [F.col(call.column).getField(ERROR) for call in calls]
    return F.coalesce(*said) if said else F.lit(None).cast("string")


def is_givable(value: Column, kind: T.DataType) -> Column | None:
    """Whether Python can be given a value (null where it is null); None: it always can.

    It cannot where a text is no UTF-8, and of Spark's times it knows the years 1 to 9999: without
    the first and the last, another zone has them, too.
    """
    if isinstance(kind, T.StringType | T.CharType | T.VarcharType):
        return F.is_valid_utf8(value)
    if isinstance(kind, T.DateType | T.TimestampType | T.TimestampNTZType):
        return F.year(value).between(2, 9998)
    if isinstance(kind, T.ArrayType):
        return _each_is_givable(value, kind.elementType)
    if isinstance(kind, T.MapType):
        parts = [
            _each_is_givable(F.map_keys(value), kind.keyType),
            _each_is_givable(F.map_values(value), kind.valueType),
        ]
    elif isinstance(kind, T.StructType):
        parts = [is_givable(value.getField(f.name), f.dataType) for f in kind.fields]
    else:
        return None
    whole = None
    for part in parts:
        if part is not None:
            fine = F.coalesce(part, F.lit(True))  # noqa: FBT003
            whole = fine if whole is None else whole & fine
    return whole


def _each_is_givable(values: Column, kind: T.DataType) -> Column | None:
    if is_givable(F.lit(None), kind) is None:
        return None

    def one(value: Column) -> Column:
        fine = is_givable(value, kind)
        return F.lit(True) if fine is None else F.coalesce(fine, F.lit(True))  # noqa: FBT003

    return F.forall(values, one)


def _called(rows: DataFrame, call: Call, given: list[Column]) -> Column:
    """As PySpark calls functions, in the rows' session; by Arrow, whatever the user has chosen.

    Spark calls what stands for a function of several rows with Arrow's arrays, also where that
    itself is given pandas' Series: `CaughtRows` makes them.
    """
    if call.function is None:
        raise ValueError(f"{call.name} was declared in another process")
    spark, gives = rows.sparkSession, result_type(call.function.gives)
    jvm: Any = spark._jvm  # noqa: SLF001 - the way to the JVM that pyspark itself takes
    session: Any = spark._jsparkSession  # noqa: SLF001 - as above
    made = getattr(jvm, "org.apache.spark.sql.execution.python.UserDefinedPythonFunction")
    function: Any = _wrap_function(spark.sparkContext, call.function, gives)
    kind = session.parseDataType(gives.json())
    always = True  # the same for the same arguments
    how: int = PythonEvalType.SQL_SCALAR_ARROW_UDF
    if call.kind == "row":
        how = PythonEvalType.SQL_ARROW_BATCHED_UDF
    udf = made(call.name, function, kind, how, always)
    columns: list[Any] = [one._jc for one in given]  # noqa: SLF001 - as above
    return ClassicColumn(udf.apply(jvm.PythonUtils.toSeq(columns)))


def _column_of(arg: Expression) -> Column:
    made: Column | None = arg.column
    if made is None:
        raise ValueError(f"{arg.text} was resolved in another process")
    return made
