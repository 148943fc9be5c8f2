"""Converts Python values of Spark's types to plain values and back, for stores and as JSON.

A value of another type than declared is refused.

========== ============================
type       kept as
========== ============================
whole      int32, int64
fraction   float64
boolean    bool
text       utf8
binary     bytes
timestamp  int64, µs since 1970
date       int32, days since 1970
decimal    utf8
others     utf8, JSON
========== ============================

Outputs have the forms of `state_lib.serdes.shown`. Times without a zone are UTC; timestamps are
returned with UTC as their zone. Fractions that are not finite are kept, also within arrays, maps
and structs; in outputs they are null.
"""

from __future__ import annotations

import base64
import datetime as dt
import math
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import orjson
from pyspark.sql import types as T  # noqa: N812

from state_lib.executor.kinds import kind_of
from state_lib.serdes.kinds import day_of, days_of, micros_of, moment_of, to_scale
from state_lib.serdes.shown import is_json, to_json

Convert = Callable[[Any], Any]
_BITS = {T.ByteType: 8, T.ShortType: 16, T.IntegerType: 32, T.LongType: 64}
_TEXTS = (T.StringType, T.CharType, T.VarcharType)
_BACK: dict[type[T.DataType], Convert] = {
    T.BinaryType: base64.b64decode,
    T.TimestampType: lambda micros: moment_of(micros).replace(tzinfo=dt.UTC),
    T.TimestampNTZType: moment_of,
    T.DateType: day_of,
    T.DecimalType: Decimal,
    T.DoubleType: float,
    T.FloatType: float,
}


# ---------------------------------------------------------------------- one field of an entry


def field_of(type_: T.DataType) -> str:
    """The kind of field in a packed struct for values of a type."""
    if isinstance(type_, T.LongType | T.TimestampType | T.TimestampNTZType):
        return "int64"
    if isinstance(type_, (*_BITS, T.DateType)):
        return "int32"
    if isinstance(type_, T.DoubleType | T.FloatType):
        return "float64"
    if isinstance(type_, T.BooleanType):
        return "bool"
    return "bytes" if isinstance(type_, T.BinaryType) else "utf8"


def to_field(type_: T.DataType) -> Convert:
    """A conversion to the kind of `field_of`; raises TypeError for a value of another type."""
    if isinstance(type_, T.BinaryType):
        return _bytes
    if isinstance(type_, T.TimestampType | T.TimestampNTZType):
        return _micros
    if isinstance(type_, T.DateType):
        return _days
    if _is_simple(type_):
        return _simple(type_)
    plain = _to_plain(type_)
    return lambda value: orjson.dumps(plain(value)).decode()


def from_field(type_: T.DataType) -> Convert | None:
    """The inverse of `to_field`; None if values are the same."""
    if isinstance(type_, T.BinaryType):
        return None
    if isinstance(type_, T.TimestampType | T.TimestampNTZType | T.DateType | T.DecimalType):
        return _from_plain(type_)
    if _is_simple(type_):
        return None
    back = _from_plain(type_)
    return lambda text: back(orjson.loads(text))


def checked(type_: T.DataType) -> Convert:
    """A conversion to values that Spark takes; raises TypeError as `to_field`."""
    for kind, check in _CHECKS.items():
        if isinstance(type_, kind):
            return check
    if isinstance(type_, T.DecimalType):
        return _decimal(type_.precision, type_.scale)
    if isinstance(type_, T.MapType):
        return _map(checked(type_.keyType), or_null(checked(type_.valueType)), dict)
    if (made := _structured(type_, checked)) is not None:
        return made
    if _is_simple(type_):
        return _simple(type_)
    raise TypeError(f"values of type {type_.simpleString()} cannot be checked: cast them")


# ---------------------------------------------------------------------- values within JSON


def shown(type_: T.DataType) -> Convert:
    """A conversion to an output's JSON; raises TypeError as `to_field`.

    Raises:
        TypeError: there is no JSON form of the type.
    """
    try:
        kind, said = kind_of(type_), _said(type_)
    except TypeError as error:
        text = type_.simpleString()
        raise TypeError(f"values of type {text} cannot be shown ({error}): cast them") from error
    return said if is_json(kind) else lambda value: to_json(kind, said(value))


def _said(type_: T.DataType) -> Convert:
    """As `checked`; for times without a zone, a zoned time is converted to UTC, as in stores."""
    if isinstance(type_, T.TimestampNTZType):
        return _utc
    if isinstance(type_, T.MapType):
        return _map(_said(type_.keyType), or_null(_said(type_.valueType)), dict)
    return _structured(type_, _said) or checked(type_)


def _to_plain(type_: T.DataType) -> Convert:
    if isinstance(type_, T.BinaryType):
        return lambda value: base64.b64encode(_bytes(value)).decode()
    if isinstance(type_, T.TimestampType | T.TimestampNTZType):
        return _micros
    if isinstance(type_, T.DateType):
        return _days
    if isinstance(type_, T.MapType):
        return _map(_to_plain(type_.keyType), or_null(_to_plain(type_.valueType)), list)
    if (made := _structured(type_, _to_plain)) is not None:
        return made
    if _is_simple(type_):
        simple = _simple(type_)
        is_fraction = isinstance(type_, T.DoubleType | T.FloatType)
        return (lambda value: _spelled(simple(value))) if is_fraction else simple
    raise TypeError(f"values of type {type_.simpleString()} cannot be kept: cast them")


def _from_plain(type_: T.DataType) -> Convert:
    for kind, back in _BACK.items():
        if isinstance(type_, kind):
            return back
    if isinstance(type_, T.MapType):
        key, item = _from_plain(type_.keyType), or_null(_from_plain(type_.valueType))
        return lambda pairs: {key(k): item(v) for k, v in pairs}
    if isinstance(type_, T.ArrayType):
        each = or_null(_from_plain(type_.elementType))
        return lambda values: [each(v) for v in values]
    if isinstance(type_, T.StructType):
        fields = [or_null(_from_plain(f.dataType)) for f in type_.fields]
        row = T.Row(*(f.name for f in type_.fields))
        return lambda values: row(*(f(v) for f, v in zip(fields, values, strict=True)))
    return lambda value: value


def _structured(type_: T.DataType, inner: Callable[[T.DataType], Convert]) -> Convert | None:
    if isinstance(type_, T.ArrayType):
        each = or_null(inner(type_.elementType))
        return lambda values: [each(v) for v in _list(values)]
    if isinstance(type_, T.StructType):
        names = [f.name for f in type_.fields]
        fields = [or_null(inner(f.dataType)) for f in type_.fields]
        if inner in (_said, checked):
            return lambda value: {
                n: f(v) for n, f, v in zip(names, fields, fields_of(value, names), strict=True)
            }
        return lambda value: [f(v) for f, v in zip(fields, fields_of(value, names), strict=True)]
    return None


def _map(key: Convert, item: Convert, made_of: type) -> Convert:
    """A conversion of a dict's pairs to a dict or list; two keys must not become equal."""

    def convert(value: Any) -> Any:
        pairs = [(key(k), item(v)) for k, v in _instance(Mapping, value).items()]
        if len({repr(k) for k, _ in pairs}) != len(pairs):
            raise TypeError(f"a map has keys that are one, once they are of its type: {value!r}")
        return made_of(pairs)

    return convert


def fields_of(value: Any, names: list[str]) -> list[Any]:
    """A row's fields in the order of names: by name if it has names, else by position.

    Raises:
        TypeError: it has other fields, or is no row.
    """
    made = None if type(value) is tuple else getattr(value, "__fields__", None)
    if made is not None and list(made) != names:
        value = dict(zip(made, value, strict=True))
    if isinstance(value, Mapping):
        if value.keys() != set(names):
            raise TypeError(f"a row has fields {sorted(value)}, and is to have {sorted(names)}")
        return [value[name] for name in names]
    if not isinstance(value, tuple | list):
        raise TypeError(f"a row is a Row, a tuple or a dict, not {value!r}")
    if len(value) != len(names):
        raise TypeError(f"a row has {len(value)} fields, and is to have {len(names)}: {names}")
    return list(value)


# ---------------------------------------------------------------------- simple ones


def _is_simple(type_: T.DataType) -> bool:
    fractions = (T.DoubleType, T.FloatType)
    return isinstance(type_, (*_BITS, *fractions, T.BooleanType, T.DecimalType, *_TEXTS))


def _simple(type_: T.DataType) -> Convert:
    for whole, bits in _BITS.items():
        if isinstance(type_, whole):
            return _whole(bits)
    if isinstance(type_, T.DoubleType):
        return _fraction
    if isinstance(type_, T.FloatType):
        return _single
    if isinstance(type_, T.BooleanType):
        return lambda value: _instance(bool, value)
    if isinstance(type_, T.DecimalType):
        made = _decimal(type_.precision, type_.scale)
        return lambda value: str(made(value))
    return _text


def _whole(bits: int) -> Convert:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def convert(value: Any) -> int:
        if type(value) is not int:
            value = _native(value)
        if type(value) is not int or not low <= value <= high:
            raise TypeError(f"{value!r} is no whole number of {bits} bits")
        return value

    return convert


def _fraction(value: Any) -> float:
    if type(value) is not float:
        value = _native(value)
    if type(value) not in (int, float):
        raise TypeError(f"{value!r} is no number")
    try:
        return float(value)
    except OverflowError as error:
        raise TypeError(f"a whole number of {value.bit_length()} bits is no DOUBLE") from error


def _single(value: Any) -> float:
    """Rounded to 32 bits."""
    double = _fraction(value)
    try:
        single: float = struct.unpack(">f", struct.pack(">f", double))[0]
    except OverflowError as error:
        raise TypeError(f"{double!r} is too large for a FLOAT") from error
    return single


def _spelled(value: float) -> float | str:
    """NaN and infinities as text that `float` reads, as JSON has no numbers for them."""
    return value if math.isfinite(value) else str(value)


def _decimal(precision: int, scale: int) -> Convert:
    most = Decimal(10) ** (precision - scale)

    def convert(value: Any) -> Decimal:
        given = _instance(Decimal, Decimal(value) if type(value) is int else value)
        made = to_scale(given, scale)
        if made is None or made.copy_abs() >= most:  # abs() would round
            raise TypeError(f"{value!r} is no decimal({precision},{scale})")
        return made

    return convert


def _bytes(value: Any) -> bytes:
    if type(value) is bytes:
        return value
    return bytes(_instance((bytes, bytearray, memoryview), value))


def _micros(value: Any) -> int:
    return micros_of(_utc(value))


def _time(value: Any) -> dt.datetime:
    """A plain datetime: subclasses, of pandas or users, may raise where they are used."""
    time: dt.datetime = _instance(dt.datetime, value)
    if type(time) is dt.datetime:
        return time
    if is_missing(time):
        raise TypeError(f"{time!r} is no time: give None")
    day, clock = (time.year, time.month, time.day), (time.hour, time.minute, time.second)
    return dt.datetime(*day, *clock, time.microsecond, tzinfo=time.tzinfo, fold=time.fold)


def _zoned(value: Any) -> dt.datetime:
    time = _time(value)
    return time.replace(tzinfo=dt.UTC) if time.tzinfo is None else time.astimezone(dt.UTC)


def _utc(value: Any) -> dt.datetime:
    return _zoned(value).replace(tzinfo=None)


def _days(value: Any) -> int:
    return days_of(_date(value))


def _date(value: Any) -> dt.date:
    if isinstance(value, dt.datetime):
        raise TypeError(f"{value!r} is a time, no date")
    date: dt.date = _instance(dt.date, value)
    return dt.date(date.year, date.month, date.day)


def _text(value: Any) -> str:
    text = str.__str__(_instance(str, value))  # a plain str, also of a subclass
    text.encode()  # raises for a lone surrogate, which UTF-8 does not have
    return text


def _naive(value: Any) -> dt.datetime:
    time = _time(value)
    if time.tzinfo is not None:
        raise TypeError(f"{value!r} has a zone, and is to have none")
    return time


def _list(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else _instance((list, tuple), value)


def _native(value: Any) -> Any:
    """NumPy's scalars as Python's numbers."""
    return value.item() if hasattr(value, "item") else value


def _instance(kind: Any, value: Any) -> Any:
    if not isinstance(value, kind):
        value = _native(value)
        if not isinstance(value, kind):
            raise TypeError(f"{value!r} is of type {type(value).__name__}, and is to be {kind}")
    return value


def or_null(convert: Convert) -> Convert:
    """The conversion, which leaves None as it is."""
    return lambda value: None if value is None else convert(value)


def is_missing(value: Any) -> bool:
    """Whether it is one of pandas' values for null."""
    if value is None:
        return True
    if isinstance(value, float):
        return math.isnan(value)
    return type(value).__name__ in ("NaTType", "NAType")


_CHECKS: dict[type[T.DataType], Convert] = {
    T.BinaryType: _bytes,
    T.TimestampType: _zoned,
    T.TimestampNTZType: _naive,
    T.DateType: _date,
}
