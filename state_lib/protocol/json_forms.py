"""Keys and values as people write and read them: in URLs and as JSON.

============ ========================= =======================================
serde        key in a URL              in an answer
============ ========================= =======================================
``utf8``     the text                  the text
``int64``    decimal                   number; ``int32`` too
``float64``  decimal                   number; ``"NaN"``, ``"Infinity"`` as text
``bytes``    hexadecimal               hexadecimal
``json``     JSON                      as it is
struct       JSON object               JSON object
others       the text of its JSON      as `state_lib.serdes.shown` has it
============ ========================= =======================================

A struct's fields are as `state_lib.serdes.shown` has them, and numbers that JSON lacks as text.
Fields of struct *values* whose name starts with ``_`` are bookkeeping and are not shown.
"""

from __future__ import annotations

import math
import re
from typing import Any

import orjson

from state_lib.errors import InvalidRequest, SerdeError
from state_lib.serdes import Struct, serde_from
from state_lib.serdes.kinds import columns_of, digits_of
from state_lib.serdes.shown import from_json, to_json

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")


def parse_key(serde: Any, text: str) -> Any:
    """The key that the text of a URL or a command line stands for; the serde checks its range.

    Args:
        serde: description of the key serde, as in the topology.
        text: the key, percent-decoded.

    Raises:
        InvalidRequest: not a key of this serde; the message describes one.
    """
    return _parsed(serde, text, "key", "all")


def parse_prefix(serde: Any, text: str) -> Any:
    """The prefix that a text stands for; for keys of several columns, a dict of the first ones.

    Raises:
        InvalidRequest: not a prefix of this serde, or its keys have no prefixes.
    """
    _require_prefixes(serde)
    return _parsed(serde, text, "prefix", "the first")


def _parsed(serde: Any, text: str, what: str, columns: str) -> Any:
    try:
        if serde == "utf8":
            return text
        if serde in ("int64", "int32"):
            return _integer(text)
        if serde == "float64":
            return float(text)
        if isinstance(serde, str) and serde not in ("json", "bool"):
            return from_json(serde, text)
        return key_from_json(serde, orjson.loads(text))
    except (ValueError, TypeError) as error:  # orjson's errors are ValueErrors
        raise InvalidRequest(
            f"{text!r} is not a {what} of serde {serde!r}: {_expected(serde, columns)}",
            serde=serde,
            seen=text,
        ) from error


def key_text(serde: Any, key: Any) -> str:
    """The inverse of `parse_key`; not yet percent-encoded."""
    if serde in ("utf8", "int64", "float64"):
        return str(key)
    shown = key_json(serde, key)
    if isinstance(shown, str) and serde != "json":
        return shown
    return orjson.dumps(shown).decode()


def key_json(serde: Any, key: Any) -> Any:
    """A key as answers show it, with all fields."""
    return key if serde == "json" else _finite(to_json(serde, key))


def key_from_json(serde: Any, shown: Any) -> Any:
    """The inverse of `key_json`. Raises ValueError or TypeError for another shape."""
    if serde == "json":
        return shown
    if serde == "float64":
        return float(shown)
    if isinstance(serde, dict) and not isinstance(shown, dict):
        raise TypeError(f"{shown!r} is no object with {[name for name, _ in columns_of(serde)]}")
    return from_json(serde, shown)


def value_json(serde: Any, value: Any) -> Any:
    """A value as answers show it, without a struct's hidden fields."""
    if serde == "json":
        return value
    if columns := columns_of(serde):
        kinds = [(name, kind) for name, kind in columns if name[:1] != "_"]
        return {name: _finite(to_json(kind, value[name])) for name, kind in kinds}
    return _finite(to_json(serde, value))


def prefix_bytes(serde: Any, prefix: Any) -> bytes:
    """The bytes that serialized keys with this prefix start with.

    Args:
        serde: description of the key serde.
        prefix: from `parse_prefix`, or given in Python: text, bytes, or a dict of the columns that
            come first in the key's bytes. Numbers, times and booleans come before texts and bytes;
            within both groups columns keep their order.

    Raises:
        InvalidRequest: a prefix of another type, of other columns or of none; or a serde whose
            keys have no prefixes.
    """
    _require_prefixes(serde)
    if isinstance(serde, dict) and prefix == {}:
        names = [name for name, _ in columns_of(serde)]
        raise InvalidRequest(f"prefix {prefix!r} has none of {names}: leave it out", serde=serde)
    made = serde_from(serde)
    try:
        return made.prefix(prefix) if isinstance(made, Struct) else made.serialize(prefix)
    except SerdeError as error:
        raise InvalidRequest(f"prefix {prefix!r}: {error.message}", serde=serde) from error


def _require_prefixes(serde: Any) -> None:
    if serde not in ("utf8", "bytes") and not isinstance(serde, dict):
        raise InvalidRequest(
            f"keys of serde {serde!r} have no prefixes, only utf8, bytes and those of several "
            "columns have: use from and to",
            serde=serde,
        )


def _finite(shown: Any) -> Any:
    """NaN and infinities as text, which JSON has no numbers for."""
    if isinstance(shown, float) and not math.isfinite(shown):
        return "NaN" if math.isnan(shown) else "Infinity" if shown > 0 else "-Infinity"
    if isinstance(shown, dict):
        return {name: _finite(item) for name, item in shown.items()}
    if isinstance(shown, list):
        return [_finite(item) for item in shown]
    return shown


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _expected(serde: Any, which: str) -> str:
    if columns := columns_of(serde):
        said = ", ".join(f'"{name}": {kind}' for name, kind in columns)
        return f"a JSON object with {which} of its columns, {{{said}}}"
    if digits := digits_of(serde):
        return f"a number with {digits[1]} digits behind the point at most"
    known = {
        "bool": "true or false",
        "bytes": "two hexadecimal digits per byte",
        "int32": "a decimal integer",
        "int64": "a decimal integer",
        "date": "2013-01-31",
        "timestamp": "2013-01-31T12:00:00Z",
        "timestamp_ntz": "2013-01-31T12:00:00",
    }
    return known.get(serde, "JSON of its type")
