"""Spark's types as kinds of values (`state_lib.serdes.kinds`)."""

from __future__ import annotations

from pyspark.sql import types as T  # noqa: N812

from state_lib.serdes.kinds import Kind

_FLAT: dict[type[T.DataType], Kind] = {
    T.StringType: "utf8",
    T.CharType: "utf8",
    T.VarcharType: "utf8",
    T.BinaryType: "bytes",
    T.ByteType: "int64",
    T.ShortType: "int64",
    T.IntegerType: "int64",
    T.LongType: "int64",
    T.FloatType: "float64",
    T.DoubleType: "float64",
    T.BooleanType: "bool",
    T.DateType: "date",
    T.TimestampType: "timestamp",
    T.TimestampNTZType: "timestamp_ntz",
}


def kind_of(type_: T.DataType) -> Kind:
    """The kind of values of a type: whole numbers are int64, fractions float64.

    Raises:
        TypeError: there is none; names the part of the type.
    """
    if (flat := _FLAT.get(type(type_))) is not None:
        return flat
    match type_:
        case T.DecimalType():
            return f"decimal({type_.precision},{type_.scale})"
        case T.StructType() if type_.fields:
            return {"struct": [[f.name, kind_of(f.dataType)] for f in type_.fields]}
        case T.ArrayType():
            return {"array": kind_of(type_.elementType)}
        case T.MapType():
            key = kind_of(type_.keyType)
            if isinstance(key, dict):
                raise TypeError(f"a map by {type_.keyType.simpleString()}")
            return {"map": [key, kind_of(type_.valueType)]}
    raise TypeError(type_.simpleString())
