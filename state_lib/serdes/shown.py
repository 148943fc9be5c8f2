"""Values of kinds as JSON has them, and back.

=================================== =======================================================
kind                                JSON
=================================== =======================================================
``int64 int32 float64 bool utf8``   as they are
``bytes``                           hexadecimal digits
``date``                            ``"2013-01-31"``
``timestamp``                       ``"2013-01-31T12:00:00.000Z"``, UTC; µs where there are any
``timestamp_ntz``                   the same without ``Z``
``decimal(p,s)``                    text, all digits
``struct``                          object by names
``array``                           array
``map``                             object by keys, each as text; ``"NaN"``, ``"Infinity"``
=================================== =======================================================

All outputs, queries and audits have this form. Spark's `to_json` has another one of some types: it
cuts µs off, a decimal may become a float where it is read, and a map's dates are numbers of days.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from state_lib.serdes.kinds import Kind, digits_of, to_scale

_AS_IT_IS = frozenset({"int64", "int32", "float64", "bool", "utf8", "json"})
_MILLISECOND_US = 1000


def is_json(kind: Kind) -> bool:
    """Whether its values are JSON's already."""
    return isinstance(kind, str) and kind in _AS_IT_IS


def to_json(kind: Kind, value: Any) -> Any:
    """A value as JSON has it; of a struct, those of its fields that are there.

    Raises:
        ValueError, TypeError, AttributeError: it is of another kind.
    """
    if value is None or is_json(kind):
        return value
    if isinstance(kind, dict):
        return _nested(kind, value)
    return _SHOWN.get(kind, all_digits)(value)


def _nested(kind: dict[str, Any], value: Any) -> Any:
    match kind:
        case {"struct": pairs}:
            return _fields(pairs, value)
        case {"array": of}:
            return [to_json(of, item) for item in value]
        case {"map": [key, of]}:
            pairs = value.items() if isinstance(value, Mapping) else value
            return {_text(key, k): to_json(of, item) for k, item in pairs}
    raise ValueError(f"no kind: {kind!r}")


def _fields(pairs: list[Any], value: Any) -> dict[str, Any]:
    """Some may be missing, as in the prefix of a key; others are a mistake."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r} is no mapping with {[name for name, _ in pairs]}")
    shown = {name: to_json(of, value[name]) for name, of in pairs if name in value}
    if len(shown) < len(value):
        raise ValueError(f"{sorted(value.keys() - shown.keys())} are none of {[*dict(pairs)]}")
    return shown


def from_json(kind: Kind, shown: Any) -> Any:
    """The inverse of `to_json`; of a map, pairs.

    Raises:
        ValueError, TypeError: it is shown in another way.
    """
    if shown is None or is_json(kind):
        return shown
    if isinstance(kind, dict):
        return _of_nested(kind, shown)
    if not isinstance(shown, str):
        raise TypeError(f"{shown!r} is no text, as {kind} is written")
    return _READ[kind](shown) if kind in _READ else decimal_of(kind, shown)


def _of_nested(kind: dict[str, Any], shown: Any) -> Any:
    match kind:
        case {"struct": pairs} if isinstance(shown, Mapping):
            kinds = dict(pairs)
            return {n: from_json(kinds[n], v) if n in kinds else v for n, v in shown.items()}
        case {"array": of} if isinstance(shown, list):
            return [from_json(of, item) for item in shown]
        case {"map": [key, of]} if isinstance(shown, Mapping):
            return [(_of_text(key, k), from_json(of, item)) for k, item in shown.items()]
    raise TypeError(f"{shown!r} is not as {kind!r} is written")


def decimal_of(kind: Kind, text: str) -> Decimal:
    """A decimal with as many digits behind the point as its kind has.

    Raises:
        ValueError: it is none, or has more of them: a rounded key is another one.
    """
    _, scale = digits_of(kind) or (0, 0)
    try:
        made = to_scale(Decimal(text), scale)
    except InvalidOperation as error:
        raise ValueError(f"{text!r} is no number") from error
    if made is None:
        raise ValueError(f"{text!r} is no {kind}")
    return made


def all_digits(value: Decimal) -> str:
    """A decimal without an exponent."""
    return format(value, "f")


def _moment(value: dt.datetime) -> str:
    if value.tzinfo is None:
        raise ValueError(f"{value!r} has no time zone")
    return _time(value.astimezone(dt.UTC).replace(tzinfo=None)) + "Z"


def _moment_of(shown: str) -> dt.datetime:
    moment = dt.datetime.fromisoformat(shown)
    return moment.replace(tzinfo=moment.tzinfo or dt.UTC)


def _time(value: dt.datetime) -> str:
    whole = value.microsecond % _MILLISECOND_US == 0
    return value.isoformat(timespec="milliseconds" if whole else "microseconds")


def _text(kind: Kind, key: Any) -> str:
    shown = to_json(kind, key)
    return shown if isinstance(shown, str) else json.dumps(shown)  # with NaN and Infinity


def _of_text(kind: Kind, text: str) -> Any:
    return from_json(kind, json.loads(text) if is_json(kind) and kind != "utf8" else text)


def _unhex(text: str) -> bytes:
    if any(character.isspace() for character in text):  # bytes.fromhex would skip it
        raise ValueError(text)
    return bytes.fromhex(text)


_SHOWN: dict[str, Callable[[Any], str]] = {
    "bytes": bytes.hex,
    "date": dt.date.isoformat,
    "timestamp": _moment,
    "timestamp_ntz": _time,
}
_READ: dict[str, Callable[[str], Any]] = {
    "bytes": _unhex,
    "date": dt.date.fromisoformat,
    "timestamp": _moment_of,
    "timestamp_ntz": dt.datetime.fromisoformat,
}
