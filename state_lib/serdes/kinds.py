"""Types of fields: how one value of each, and a column of them, become bytes.

=================== ======================== ==============================================
kind                in Python                bytes, numbers big-endian
=================== ======================== ==============================================
``int64 int32``     int                      8, 4; negative ones sort last
``float64``         float                    8
``bool``            bool                     1
``date``            date                     4: days since 1970, plus 2^31
``timestamp``       datetime, with a zone    8: µs since 1970, plus 2^63
``timestamp_ntz``   datetime, without one    8: as if it were of UTC
``decimal(p,s)``    Decimal                  16: its digits as a whole number, plus 2^127
``utf8 bytes``      str, bytes               themselves
``{"struct": …}``   mapping                  see `state_lib.serdes.nested`, also for
                                             ``{"array": kind}`` and ``{"map": [kind, kind]}``
=================== ======================== ==============================================

What is added makes them sort by value.
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state_lib.errors import ConfigurationError
from state_lib.serdes.base import Serde
from state_lib.serdes.columns import bitmap, buffer_of, unpack_bits, view_of
from state_lib.serdes.scalar import Bytes, Utf8

Kind = str | dict[str, Any]
"""A kind as it is described; see the table. A key of several columns is a struct."""
MOST_DIGITS = 38
_DECIMAL = re.compile(r"decimal\(([0-9]{1,2}),([0-9]{1,2})\)")
_DECIMAL_BYTES, _TOP, _ZERO = 16, 0x80, 1 << 127
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - of UTC, as all that is counted from it
_DAY = dt.date(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)
EXACT = Context(prec=2 * MOST_DIGITS + 4)
"""Python's own has 28 digits."""
_Values = npt.NDArray[Any]


class Fixed:
    """Values that all take as many bytes.

    Attributes:
        name: how the kind is described.
        code, zero: of `struct`, and what stands there for a null.
        dtype, shape: of NumPy.
        arrow_type: of columns.
    """

    code: str
    dtype: str
    shape: tuple[int, ...] = ()
    zero: Any = 0

    def __init__(self, name: str, arrow_type: pa.DataType) -> None:
        self.name, self.arrow_type = name, arrow_type

    def fits(self, value: Any) -> bool:
        """Whether it is of this kind."""
        raise NotImplementedError

    def raw(self, value: Any) -> Any:
        """What `struct` packs. Raises ValueError or OverflowError for one that is too large."""
        return value

    def value(self, raw: Any) -> Any:
        """The inverse of `raw`. Raises OverflowError where Python has no such value."""
        return raw

    def raws(self, column: Any) -> _Values:
        """A column's, those of nulls included."""
        return view_of(column, self.dtype.replace(">", "<"))

    def outside(self, raws: _Values) -> Any:  # noqa: ARG002 - for those that look
        """Where a column may not hold what is there, NumPy's booleans; None: nowhere."""
        return None

    def column(self, raws: _Values, nulls: Any) -> Any:
        """The inverse of `raws`; ``nulls``: where there is none."""
        return self._array(raws.astype(self.dtype.replace(">", "<")), nulls)

    def _array(self, body: Any, nulls: Any) -> Any:
        valid = bitmap(~nulls) if nulls.any() else None
        return pa.Array.from_buffers(self.arrow_type, len(nulls), [valid, buffer_of(body)])


class _Whole(Fixed):
    def __init__(self, name: str, arrow_type: pa.DataType, code: str, dtype: str) -> None:
        super().__init__(name, arrow_type)
        self.code, self.dtype = code, dtype

    def fits(self, value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool)


class _Fraction(Fixed):
    code, dtype = "d", ">f8"

    def fits(self, value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)


class _Bool(Fixed):
    code, dtype = "?", "u1"

    def fits(self, value: Any) -> bool:
        return isinstance(value, bool)

    def raws(self, column: Any) -> _Values:
        if column.buffers()[1] is None:
            return np.zeros(len(column), np.uint8)
        return unpack_bits(column.buffers()[1], column.offset, len(column)).view(np.uint8)

    def column(self, raws: _Values, nulls: Any) -> Any:
        valid = bitmap(~nulls) if nulls.any() else None
        return pa.Array.from_buffers(self.arrow_type, len(nulls), [valid, bitmap(raws != 0)])


class _Time(Fixed):
    """Numbers whose first bit is turned, so that those before 1970 sort first."""

    _first: int

    def raws(self, column: Any) -> _Values:
        little = np.dtype(self.dtype.replace(">", "<"))
        turned: _Values = view_of(column, little.str) ^ little.type(self._first)
        return turned

    def column(self, raws: _Values, nulls: Any) -> Any:
        little = np.dtype(self.dtype.replace(">", "<"))
        return self._array(raws.astype(little) ^ little.type(self._first), nulls)


class _Date(_Time):
    code, dtype, _first = "I", ">u4", 1 << 31

    def fits(self, value: Any) -> bool:
        return isinstance(value, dt.date) and not isinstance(value, dt.datetime)

    def raw(self, value: Any) -> Any:
        return days_of(value) + self._first

    def value(self, raw: Any) -> Any:
        return day_of(raw - self._first)


class _Timestamp(_Time):
    """With a zone, whichever, and UTC when it is read; or without one."""

    code, dtype, _first = "Q", ">u8", 1 << 63

    def __init__(self, name: str, *, zoned: bool) -> None:
        super().__init__(name, pa.timestamp("us", "UTC") if zoned else pa.timestamp("us"))
        self._zoned = zoned

    def fits(self, value: Any) -> bool:
        return isinstance(value, dt.datetime) and (value.tzinfo is not None) == self._zoned

    def raw(self, value: Any) -> Any:
        if self._zoned:
            value = value.astimezone(dt.UTC).replace(tzinfo=None)
        return micros_of(value) + self._first

    def value(self, raw: Any) -> Any:
        made = moment_of(raw - self._first)
        return made.replace(tzinfo=dt.UTC) if self._zoned else made


class _Decimal(Fixed):
    code, dtype, shape = f"{_DECIMAL_BYTES}s", "u1", (_DECIMAL_BYTES,)
    zero = bytes(_DECIMAL_BYTES)

    def __init__(self, name: str, digits: int, scale: int) -> None:
        super().__init__(name, pa.decimal128(digits, scale))
        self._most, self._scale = 10**digits, scale

    def fits(self, value: Any) -> bool:
        return isinstance(value, Decimal) and value.is_finite()

    def raw(self, value: Any) -> bytes:
        made = to_scale(value, self._scale)
        whole = self._most if made is None else int(made.scaleb(self._scale, context=EXACT))
        if abs(whole) >= self._most:
            raise ValueError(f"{value} is no {self.name}")
        return (whole + _ZERO).to_bytes(_DECIMAL_BYTES, "big")

    def value(self, raw: Any) -> Any:
        whole = int.from_bytes(raw, "big") - _ZERO
        if abs(whole) >= self._most:
            raise OverflowError(f"{whole} has more digits than {self.name}")
        return Decimal(whole).scaleb(-self._scale, context=EXACT)

    def raws(self, column: Any) -> _Values:
        little = view_of(column, f"V{_DECIMAL_BYTES}").view(np.uint8)
        out = little.reshape(-1, _DECIMAL_BYTES)[:, ::-1].copy()
        out[:, 0] ^= _TOP
        return out

    def outside(self, raws: _Values) -> Any:
        return _below(raws, _ZERO - self._most + 1) | ~_below(raws, _ZERO + self._most)

    def column(self, raws: _Values, nulls: Any) -> Any:
        big = raws.copy()
        big[:, 0] ^= _TOP
        big[nulls] = 0  # else a null's slot might have a number with too many digits
        return self._array(big[:, ::-1], nulls)


def _below(raws: _Values, bound: int) -> Any:
    """Where 16 bytes, as a whole number without a sign, are less than the bound."""
    high, low = np.ascontiguousarray(raws).view(">u8").T
    first, second = map(np.uint64, divmod(bound, 1 << 64))
    return (high < first) | ((high == first) & (low < second))


class Variable(Serde[Any], Protocol):
    """Values of any length, as a serde makes them; in a struct the length stands before each."""

    def fits(self, value: Any) -> bool:
        """Whether it is of this kind."""
        ...


FIXED: dict[str, Fixed] = {
    "int64": _Whole("int64", pa.int64(), "q", ">i8"),
    "int32": _Whole("int32", pa.int32(), "i", ">i4"),
    "float64": _Fraction("float64", pa.float64()),
    "bool": _Bool("bool", pa.bool_()),
    "date": _Date("date", pa.date32()),
    "timestamp": _Timestamp("timestamp", zoned=True),
    "timestamp_ntz": _Timestamp("timestamp_ntz", zoned=False),
}
VARIABLE: dict[str, Variable] = {"utf8": Utf8(), "bytes": Bytes()}
KNOWN = [*FIXED, "decimal(p,s)", *VARIABLE, "struct", "array", "map"]


def kind_from(described: Any) -> Fixed | Variable:
    """The kind that a description means. Raises ConfigurationError, listing those there are."""
    if isinstance(described, dict):
        from state_lib.serdes.nested import nested_from  # noqa: PLC0415 - made of structs itself

        return nested_from(described)
    if isinstance(described, str):
        if described in FIXED:
            return FIXED[described]
        if described in VARIABLE:
            return VARIABLE[described]
        if digits := digits_of(described):
            return _Decimal(described, *digits)
    raise ConfigurationError(f"no type {described!r} is known; known: {KNOWN}", seen=described)


def columns_of(described: Any) -> list[tuple[str, Kind]]:
    """Fields of a struct, by name; of another kind none."""
    pairs: list[Any] = described.get("struct", []) if isinstance(described, dict) else []
    return [(name, kind) for name, kind in pairs]


def digits_of(described: Any) -> tuple[int, int] | None:
    """Digits of a decimal, and how many of them are behind the point; None if it is none."""
    found = _DECIMAL.fullmatch(described) if isinstance(described, str) else None
    if found is None:
        return None
    digits, scale = int(found[1]), int(found[2])
    return (digits, scale) if 1 <= digits <= MOST_DIGITS and scale <= digits else None


# ---------------------------------------------------------------------- values as numbers


def to_scale(value: Decimal, scale: int) -> Decimal | None:
    """The same number with so many digits behind the point; None if it has more, or is none."""
    try:
        made = value.quantize(Decimal(1).scaleb(-scale), context=EXACT)
    except InvalidOperation:  # infinity, or too many digits for any kind
        return None
    return made if made == value else None


def days_of(day: dt.date) -> int:
    """Since 1970."""
    return (day - _DAY).days


def day_of(days: int) -> dt.date:
    """The inverse of `days_of`. Raises OverflowError where Python has no such date."""
    return _DAY + dt.timedelta(days=days)


def micros_of(moment: dt.datetime) -> int:
    """µs since 1970 of a time without a zone."""
    return (moment - _EPOCH) // _MICROSECOND


def moment_of(micros: int) -> dt.datetime:
    """The inverse of `micros_of`. Raises OverflowError where Python has no such time."""
    return _EPOCH + micros * _MICROSECOND
