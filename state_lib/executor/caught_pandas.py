"""What functions of pandas are given and give: as PySpark does it for pandas UDFs, in UTC.

Whole numbers are of pandas' types with nulls (Int64), as under Spark's
`spark.sql.execution.pythonUDF.pandas.preferIntExtensionDtype`: else they were fractions where one of
the other rows has a null, and what a function gives would depend on these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.conversion import ArrowBatchTransformer

from state_lib.executor.caught_arrow import Column, Taken, measured


def series(given: list[Any]) -> list[Any]:
    """Arrays as Series, and those of structs as DataFrames."""
    batch = pa.RecordBatch.from_arrays(given, [f"_{i}" for i in range(len(given))])
    return list(
        ArrowBatchTransformer.to_pandas(
            batch, timezone="UTC", prefer_int_ext_dtype=True, df_for_struct=True
        )
    )


def of_series(type_: T.DataType) -> Taken:
    """What takes the Series of a function that gives values of a type, or its DataFrames."""
    if isinstance(type_, T.StructType):
        return _of_frame(type_)
    converted = _converted(type_)

    def taken(given: Any, many: int) -> Any:
        if not isinstance(given, pd.Series):
            raise TypeError(f"it gave a {type(given).__name__}, and is to give a pandas.Series")
        measured(given, many)
        return converted(given)

    return taken


def _of_frame(type_: T.StructType) -> Taken:
    """By the names of columns, else by their places."""
    names, wanted = type_.names, list(Column(type_).wanted)
    each = [_converted(field.dataType) for field in type_.fields]

    def taken(given: Any, many: int) -> Any:
        if not isinstance(given, pd.DataFrame):
            raise TypeError(f"it gave a {type(given).__name__}, and is to give a pandas.DataFrame")
        measured(given, many)
        has = list(given.columns)
        places = list(range(len(has)))
        if any(isinstance(one, str) for one in has):
            if sorted(map(str, has)) != sorted(names):
                raise TypeError(f"it gave columns {has}, and is to give {names}")
            places = [has.index(name) for name in names]
        if len(places) != len(names):
            raise TypeError(f"it gave {len(places)} columns, and is to give {names}")
        pairs = zip(each, places, strict=True)
        arrays = [converted(given.iloc[:, place]) for converted, place in pairs]
        return pa.StructArray.from_arrays(arrays, fields=wanted)

    return taken


def _converted(type_: T.DataType) -> Callable[[Any], Any]:
    """Of a column. NaN, NaT and NA are nulls, as they are in pandas."""
    column = Column(type_, whole_fractions=True)

    def converted(given: Any) -> Any:
        if isinstance(given.dtype, pd.CategoricalDtype):
            given = given.astype(given.dtype.categories.dtype)
        if given.dtype == object:
            pairs = zip(given, given.isnull(), strict=True)
            return column.of_values(None if missing else value for value, missing in pairs)
        array = pa.Array.from_pandas(given)
        return column.of(array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array)

    return converted
