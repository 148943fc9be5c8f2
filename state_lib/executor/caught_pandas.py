"""What functions of pandas are given and give: as PySpark does it for pandas UDFs, in UTC.

But whole numbers are of pandas' types with nulls (Int64), as PySpark's
`spark.sql.execution.pythonUDF.pandas.preferIntExtensionDtype` has them: else they were fractions
where one of the other rows has a null, large ones were rounded, and what a function gives would
depend on the rows beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as A  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.conversion import ArrowBatchTransformer

from state_lib.executor.caught_arrow import Column, Taken, measured

_WHOLE = {
    pa.int8(): pd.Int8Dtype(),
    pa.int16(): pd.Int16Dtype(),
    pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(),
}


def series(given: list[Any]) -> list[Any]:
    """Arrays as Series, and those of structs as DataFrames."""
    return [_given(one, f"_{place}", frames=True) for place, one in enumerate(given)]


def _given(given: Any, name: str, *, frames: bool) -> Any:
    if A.is_integer(given.type):  # PySpark's are rounded where pandas takes them for fractions
        return given.to_pandas(types_mapper=_WHOLE.get).rename(name)
    if frames and A.is_struct(given.type):
        pairs = zip(given.flatten(), given.type, strict=True)
        return pd.concat([_given(one, f.name, frames=False) for one, f in pairs], axis=1)
    batch = pa.RecordBatch.from_arrays([given], [name])
    return ArrowBatchTransformer.to_pandas(batch, timezone="UTC")[0]


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
        if given.dtype == object:
            pairs = zip(given, given.isna(), strict=True)
            return column.of_values(None if missing else value for value, missing in pairs)
        array = pa.Array.from_pandas(given)
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        if A.is_floating(array.type):  # pandas' Float64 has NaN beside NA: 0 / 0 of whole numbers
            array = pc.if_else(pc.is_nan(array), pa.scalar(None, array.type), array)
        return column.of(array)

    return converted
