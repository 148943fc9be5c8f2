"""Keys and values as people write and read them: in URLs and as JSON.

============ ========================= =======================================
serde        key in a URL              in an answer
============ ========================= =======================================
``utf8``     the text                  the text
``int64``    decimal                   number
``float64``  decimal                   number; ``"NaN"``, ``"Infinity"`` as text
``bytes``    hexadecimal               hexadecimal
``json``     JSON                      as it is
struct       JSON object               JSON object, ``bytes`` fields hexadecimal
============ ========================= =======================================

Fields of struct *values* whose name starts with ``_`` are bookkeeping and are not shown.
"""

from __future__ import annotations

import math
import re
from typing import Any

import orjson

from state_lib.errors import InvalidRequest

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")


def parse_key(serde: Any, text: str) -> Any:
    """The key that a URL or a command line means; the serde itself judges its range.

    Args:
        serde: description of the key serde, as in the topology.
        text: the key, percent-decoded.

    Raises:
        InvalidRequest: not a key of this serde; says what one looks like.
    """
    try:
        if serde == "utf8":
            return text
        if serde == "bytes":
            return _unhex(text)
        if serde == "int64":
            return _integer(text)
        if serde == "float64":
            return float(text)
        return key_from_json(serde, orjson.loads(text))
    except ValueError as error:  # orjson's errors are ValueErrors
        raise InvalidRequest(
            f"{text!r} is not a key of serde {serde!r}: {_expected(serde)}", serde=serde, seen=text
        ) from error


def key_text(serde: Any, key: Any) -> str:
    """The inverse of `parse_key`; not yet percent-encoded."""
    if serde in ("utf8", "int64", "float64"):
        return str(key)
    shown = key_json(serde, key)
    return str(shown) if serde == "bytes" else orjson.dumps(shown).decode()


def key_json(serde: Any, key: Any) -> Any:
    """A key in an answer; no field is left out."""
    return key if serde == "json" else _plain(key)


def key_from_json(serde: Any, shown: Any) -> Any:
    """The inverse of `key_json`. Raises ValueError or TypeError for another shape."""
    if serde == "bytes":
        return _unhex(shown)
    if serde == "float64":
        return float(shown)
    if isinstance(serde, dict) and isinstance(shown, dict):
        raw = {name for name, kind in serde["struct"] if kind == "bytes"}
        return {n: _unhex(v) if n in raw and v is not None else v for n, v in shown.items()}
    return shown


def value_json(serde: Any, value: Any) -> Any:
    """A value in an answer, without a struct's hidden fields."""
    if serde == "json":
        return value
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items() if name[:1] != "_"}
    return _plain(value)


def prefix_bytes(serde: Any, text: str) -> bytes:
    """The bytes that serialized keys with this prefix start with.

    Raises:
        InvalidRequest: not hexadecimal for a ``bytes`` key; or keys of another serde than utf8 and
            bytes, of which a prefix means nothing.
    """
    if serde == "utf8":
        return text.encode()
    if serde == "bytes":
        raw: bytes = parse_key(serde, text)
        return raw
    raise InvalidRequest(
        f"keys of serde {serde!r} have no prefixes, only utf8 and bytes have: use from and to",
        serde=serde,
    )


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value


def _unhex(text: str) -> bytes:
    if any(character.isspace() for character in text):  # bytes.fromhex would skip it
        raise ValueError(text)
    return bytes.fromhex(text)


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _expected(serde: Any) -> str:
    known = {"bytes": "two hexadecimal digits per byte", "int64": "a decimal integer"}
    return known["bytes"] if serde == "bytes" else known.get(str(serde), "JSON of its type")
