"""Bounds that fastavro's compiled reader lacks: depth of nesting, and number of empty items.

It recurses in C: deeply nested records crash the process, at each retry of the batch. And it loops
as often as an array's count says, which items of zero bytes do not limit. Nearly all schemas allow
neither, and cost nothing here.
"""

from __future__ import annotations

from typing import Any

DEEPEST = 600
"""Levels of nested types. A record within a union is two of them."""
_MOST_EMPTY = 65_536
"""Most array items of zero bytes in one record."""
_MOST_BITS = 63
_SIZES = {"null": 0, "float": 4, "double": 8}


class Bounds:
    """The bounds for one writer's `normal` schema; ``needed``: whether it can exceed any."""

    def __init__(self, schema: Any) -> None:
        self._schema, self.needed = schema, False
        self._named: dict[str, Any] = {}
        self._sizes: dict[str, int] = {}
        self._least(schema)

    def check(self, raw: bytes, at: int) -> None:
        """Check a record before it is read.

        Raises:
            ValueError: it exceeds a bound, or does not fit the schema.
        """
        _Walk(self._named, raw, at).over(self._schema, 0)

    def _least(self, given: Any) -> int:
        """The least size of a value (bytes)."""
        if isinstance(given, list):
            for one in given:
                self._least(one)
            return 1
        if isinstance(given, str):
            if given in self._named and given not in self._sizes:  # a recursive type
                self.needed = True
                return 0
            return self._sizes.get(given, _SIZES.get(given, 1))
        if "name" in given:
            self._named[given["name"]] = given
        size = self._of(given)
        if "name" in given:
            self._sizes[given["name"]] = size
        return size

    def _of(self, schema: Any) -> int:
        match schema["type"]:
            case "record" | "error":
                return sum([self._least(field["type"]) for field in schema["fields"]])
            case "fixed":
                return int(schema["size"])
            case "array":
                if self._least(schema["items"]) == 0:
                    self.needed = True
            case "map":  # a key takes at least a byte
                self._least(schema["values"])
        return _SIZES.get(schema["type"], 1)


class _Walk:
    """A walk over the bytes of one record."""

    def __init__(self, named: dict[str, Any], raw: bytes, at: int) -> None:
        self._named, self._raw, self._at = named, raw, at
        self._seen = self._empty = 0

    def over(self, given: Any, depth: int) -> None:
        """Skip a value. One function, so that each level is one frame of Python's bounded stack."""
        if depth > DEEPEST:
            raise ValueError(f"it has more than {DEEPEST} levels")
        self._seen += 1
        schema = self._named.get(given, given) if isinstance(given, str) else given
        if isinstance(schema, list):
            self.over(schema[self._number(len(schema) - 1)], depth + 1)
            return
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind in ("record", "error"):
            for field in schema["fields"]:
                self.over(field["type"], depth + 1)
        elif kind in ("array", "map"):
            inner = schema["values" if kind == "map" else "items"]
            while count := self._number(None):
                if count < 0:
                    self._number(None)  # size of the block
                for _ in range(abs(count)):
                    at, seen = self._at, self._seen
                    if kind == "map":
                        self._pass(self._number(None))
                    self.over(inner, depth + 1)
                    self._count(seen if self._at == at else self._seen)
        else:
            self._leaf(kind, schema)

    def _leaf(self, kind: str, schema: Any) -> None:
        match kind:
            case "bytes" | "string":
                self._pass(self._number(None))
            case "fixed":
                self._pass(schema["size"])
            case "int" | "long" | "enum":
                self._number(None)
            case _:
                self._pass(_SIZES.get(kind, 1))

    def _count(self, since: int) -> None:
        self._empty += self._seen - since
        if self._empty > _MOST_EMPTY:
            raise ValueError(f"it has more than {_MOST_EMPTY} values without a byte")

    def _pass(self, size: int) -> None:
        if not 0 <= size <= len(self._raw) - self._at:
            raise ValueError(f"{size} bytes at {self._at} are not there")
        self._at += size

    def _number(self, most: int | None) -> int:
        """Read an integer; ``most``: it must be from 0 to that."""
        found = shift = 0
        while True:
            if self._at >= len(self._raw) or shift > _MOST_BITS:
                raise ValueError(f"no number ends at {self._at}")
            byte = self._raw[self._at]
            self._at += 1
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:  # noqa: PLR2004 - the bit means that more bytes follow
                break
        number = (found >> 1) ^ -(found & 1)
        if most is not None and not 0 <= number <= most:
            raise ValueError(f"there is no branch {number}")
        return number
