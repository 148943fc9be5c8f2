"""What fastavro's compiled reader does not bound: how deep a record goes, and what takes no byte.

It recurses in C: a long chain of records within records ends the process, and so every try of the
batch. It counts to whatever an array says it holds, and items of no size are never missing. Schemas
that allow neither, as nearly all do, cost nothing here.
"""

from __future__ import annotations

from typing import Any

DEEPEST = 600
"""Levels of types within types. A record within a union is two of them."""
_MOST_EMPTY = 65_536
"""Values in items of arrays that take no byte, in one record."""
_MOST_BITS = 63
_SIZES = {"null": 0, "float": 4, "double": 8}


class Bounds:
    """Those of one writer's schema, which is `normal`; ``needed``: whether it can pass any."""

    def __init__(self, schema: Any) -> None:
        self._schema, self.needed = schema, False
        self._named: dict[str, Any] = {}
        self._sizes: dict[str, int] = {}
        self._least(schema)

    def check(self, raw: bytes, at: int) -> None:
        """Look at a record before it is read.

        Raises:
            ValueError: it passes a bound, or is no record of the schema.
        """
        _Walk(self._named, raw, at).over(self._schema, 0)

    def _least(self, given: Any) -> int:
        """How many bytes a value takes at least."""
        if isinstance(given, list):
            for one in given:
                self._least(one)
            return 1
        if isinstance(given, str):
            if given in self._named and given not in self._sizes:  # it is within itself
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
            case "map":  # its keys take a byte
                self._least(schema["values"])
        return _SIZES.get(schema["type"], 1)


class _Walk:
    """Over one record, from its begin to its end."""

    def __init__(self, named: dict[str, Any], raw: bytes, at: int) -> None:
        self._named, self._raw, self._at = named, raw, at
        self._seen = self._empty = 0

    def over(self, given: Any, depth: int) -> None:
        """Past a value. In one function: each level is a frame, and Python bounds those."""
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
                    self._number(None)  # bytes of the block
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
        """An integer as Avro writes it; ``most``: it is one of 0 to that."""
        found = shift = 0
        while True:
            if self._at >= len(self._raw) or shift > _MOST_BITS:
                raise ValueError(f"no number ends at {self._at}")
            byte = self._raw[self._at]
            self._at += 1
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:  # noqa: PLR2004 - the bit that says that more follow
                break
        number = (found >> 1) ^ -(found & 1)
        if most is not None and not 0 <= number <= most:
            raise ValueError(f"there is no branch {number}")
        return number
