"""Spark's types as kinds of fields, and kinds as Spark's types: derived, never repeated."""

from __future__ import annotations

from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from state_lib.declaration import Field
from state_lib.executor.decimals import MOST_SUMMED
from state_lib.executor.kinds import kind_of
from state_lib.serdes.kinds import MOST_DIGITS, Kind, digits_of
from state_lib.spark.analysis import quoted
from state_lib.spark.sources import in_another_case

MOST_KEY_DIGITS = 18
"""Of a decimal in a key: Spark writes its digits as one number of 64 bits."""
_SQL = {
    "utf8": "string",
    "bytes": "binary",
    "int64": "bigint",
    "int32": "int",
    "float64": "double",
    "bool": "boolean",
}


class NoKey(TypeError):
    """A type that no key has. ``column``: of which column it is; empty: of the only one."""

    def __init__(self, type_: DataType, column: str = "") -> None:
        named = f"{column!r} is " if column else ""
        super().__init__(f"{named}{type_.simpleString()}")
        self.column = column


def kept_as(type_: DataType) -> Kind:
    """What aggregates keep a value of a type as.

    Raises:
        TypeError: it cannot be kept; says which part of it.
    """
    _check(type_)
    return kind_of(type_)


def _check(type_: DataType) -> None:
    """Refuse what has a kind, but of which two values that Spark takes for one would differ."""
    match type_:
        case StringType() if not type_.isUTF8BinaryCollation():
            raise TypeError(type_.simpleString())
        case StructType():
            if twice := in_another_case(type_.names):
                raise TypeError(f"a struct with several fields called {twice} (rename one)")
            for field in type_.fields:
                _check(field.dataType)
        case ArrayType():
            _check(type_.elementType)
        case MapType():
            if kind_of(type_.keyType) == "float64":  # NaNs and zeros have several binary forms
                by = type_.keyType.simpleString()
                raise TypeError(f"a map by {by} (cast its keys, to a decimal or to text)")
            _check(type_.keyType)
            _check(type_.valueType)


def key_serde_of(type_: DataType) -> Kind:
    """What a key of a type is kept as; of a struct, a column for each of its fields.

    Raises:
        NoKey: it cannot be a key; says which part of it.
    """
    if not isinstance(type_, StructType):
        return _column_of(type_)
    if not type_.fields:
        raise NoKey(type_)
    return {"struct": [[f.name, _column_of(f.dataType, f.name)] for f in type_.fields]}


def _column_of(type_: DataType, name: str = "") -> Kind:
    try:
        kind = kept_as(type_)
    except TypeError as error:
        raise NoKey(type_, name) from error
    digits = digits_of(kind)
    if isinstance(kind, dict) or kind == "float64" or (digits and digits[0] > MOST_KEY_DIGITS):
        raise NoKey(type_, name)
    return kind


def sum_of(kind: Kind) -> Kind | None:
    """What the sum of such values is kept as; None if it is none."""
    digits = digits_of(kind)
    if digits is not None and digits[0] <= MOST_SUMMED:
        return f"decimal({MOST_DIGITS},{digits[1]})"
    return kind if kind in ("int64", "float64") else None


def sorts(kind: Kind, *, within: bool = False) -> bool:
    """Whether the least and the greatest of such values can be kept.

    Within a struct fractions cannot: of -0.0 and 0.0, which are equal, one would be kept by chance.
    """
    if isinstance(kind, dict):
        return "struct" in kind and all(sorts(of, within=True) for _, of in kind["struct"])
    return not within or kind != "float64"


def taken_as(field: Field) -> Kind:
    """What a field takes of a row: sums have room for more digits than what is summed."""
    digits = digits_of(field.type) if field.op == "sum" else None
    return field.type if digits is None else f"decimal({MOST_SUMMED},{digits[1]})"


def sql_of(kind: Kind) -> str:
    """The type that Spark is to make of a value, as DDL."""
    match kind:
        case str():
            return _SQL.get(kind, kind)
        case {"struct": pairs}:
            fields = (f"{quoted(name)}:{sql_of(of)}" for name, of in pairs)
            return f"struct<{','.join(fields)}>"
        case {"array": of}:
            return f"array<{sql_of(of)}>"
        case {"map": [key, of]}:
            return f"map<{sql_of(key)},{sql_of(of)}>"
    raise TypeError(f"no kind: {kind!r}")
