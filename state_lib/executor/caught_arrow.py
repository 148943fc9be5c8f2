"""Arrow's arrays as functions give them, made those of the declared type.

As strict as `checked`. What can be converted at once, without a look at each value, is; everything
else goes through `checked` value by value, and is what it would be of a function of single rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as A  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.conversion import LocalDataToArrowConversion
from pyspark.sql.pandas.types import to_arrow_type

from state_lib.executor.caught import VALUE, result_type
from state_lib.executor.process.values import checked, or_null

Taken = Callable[[Any, int], Any]
"""Makes of what a function gave for so many rows an array; raises TypeError, or Arrow's errors."""
_SORTS: dict[str, tuple[Callable[[Any], bool], ...]] = {
    "whole": (A.is_integer,),
    "fraction": (A.is_floating,),
    "truth": (A.is_boolean,),
    "text": (A.is_string, A.is_large_string, A.is_string_view),
    "bytes": (A.is_binary, A.is_large_binary, A.is_binary_view, A.is_fixed_size_binary),
    "decimal": (A.is_decimal,),
    "day": (A.is_date,),
    "time": (A.is_timestamp,),
}


class OtherCount(TypeError):
    """It gave another number of values than there were rows."""


def of_array(type_: T.DataType) -> Taken:
    """What takes the arrays of a function that gives values of a type."""
    column = Column(type_)

    def taken(given: Any, many: int) -> Any:
        if not isinstance(given, pa.Array):
            raise TypeError(f"it gave a {type(given).__name__}, and is to give a pyarrow.Array")
        measured(given, many)
        given.validate(full=True)
        return column.of(given)

    return taken


def measured(given: Any, many: int) -> None:
    """Raises TypeError unless it has as many values as there were rows."""
    if len(given) != many:
        raise OtherCount(f"it gave {len(given)} values for {many} rows")


class Column:
    """Makes arrays and values those of a type: all that it makes has exactly ``wanted``.

    Args:
        type_: Spark's.
        whole_fractions: whether fractions are taken for whole numbers where each of them is one.
    """

    def __init__(self, type_: T.DataType, *, whole_fractions: bool = False) -> None:
        plain: Any = result_type(type_)[VALUE].dataType  # all of it may be null
        self.wanted = to_arrow_type(plain, timezone="UTC")
        self._check = or_null(checked(type_))
        self._convert = LocalDataToArrowConversion._create_converter(plain)  # noqa: SLF001 - as Spark
        self._has_map = _has_map(type_)
        self._sort = _sort(self.wanted)
        self._at_once = {(self._sort, self._sort), ("whole", "fraction")}
        if whole_fractions:
            self._at_once.add(("fraction", "whole"))

    def of(self, given: Any) -> Any:
        """An array of an array."""
        if A.is_dictionary(given.type):
            given = given.dictionary_decode()
        if given.type == self.wanted and not self._has_map:
            return given.cast(self.wanted)  # fields of lists may be called otherwise
        if isinstance(given.type, pa.BaseExtensionType):
            raise TypeError(f"it gave {given.type}, and is to give {self.wanted}")
        if A.is_null(given.type):
            return pa.nulls(len(given), self.wanted)
        if not self._sort or (_sort(given.type), self._sort) not in self._at_once:
            return self.of_values(given.to_pylist(maps_as_pydicts="strict"))
        if self._sort == "time":
            return self._times(given)
        made = given.cast(self.wanted, safe=self._sort != "fraction")  # a FLOAT is rounded
        if A.is_float64(given.type) and pc.any(_overflows(given, made)).as_py():
            raise TypeError(f"a value is too large for {self.wanted}")
        return made

    def of_values(self, given: Iterable[Any]) -> Any:
        """An array of single values."""
        return pa.array([self._convert(self._check(one)) for one in given], self.wanted)

    def _times(self, given: Any) -> Any:
        """Whatever their zone, they count from 1970 in UTC; those without one are in UTC."""
        if given.type.tz is not None and self.wanted.tz is None:
            raise TypeError(f"it gave times in {given.type.tz}, and is to give some without a zone")
        plain = given.view(pa.timestamp(given.type.unit))
        if given.type.unit == "ns":
            plain = pc.floor_temporal(plain, unit="microsecond")
        return plain.cast(pa.timestamp("us")).cast(self.wanted)


def _overflows(given: Any, made: Any) -> Any:
    """Where a number has become infinite."""
    return pc.and_(pc.is_inf(made), pc.is_finite(given))


def _sort(kind: Any) -> str:
    return next((sort for sort, tests in _SORTS.items() if any(test(kind) for test in tests)), "")


def _has_map(type_: T.DataType) -> bool:
    """Two of its keys may be one, which Arrow does not see."""
    if isinstance(type_, T.ArrayType):
        return _has_map(type_.elementType)
    if isinstance(type_, T.StructType):
        return any(_has_map(field.dataType) for field in type_.fields)
    return isinstance(type_, T.MapType)
