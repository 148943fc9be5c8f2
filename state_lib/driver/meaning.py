"""A digest of the code of a processor or a function.

It covers the code that Python runs, not its pickle: the pickle of an importable class is only its
name, and that of another class contains paths.
"""

from __future__ import annotations

import hashlib
import re
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import cached_property, partial
from pathlib import PurePath
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    MethodType,
    ModuleType,
)
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

_PLAIN = (
    *(str, bytes, int, float, complex, bool, type(None)),
    *(Decimal, Fraction, timedelta, UUID, range, PurePath, ZoneInfo),
)
_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType, partial, type)
_NOT_CODE = {
    *("__dict__", "__weakref__", "__doc__", "__module__", "__firstlineno__"),
    "__static_attributes__",
}


def meaning_of(*given: object) -> str:
    """Sixteen hexadecimal digits for the code of functions.

    They change with the functions' code; with the functions, classes and values that it names, also
    through a module (``rules.classify``) or a decorator that keeps the wrapped function; and with
    values in closures and defaults. For an object, like a `StatefulProcessor` or the object of a
    method, they cover its class and its attributes. Code of libraries and other objects are not
    covered.
    """
    parts = [part for one in given for part in _parts(one)]
    return _hashed(parts)


def _hashed(parts: list[str]) -> str:
    """Hashed, as nested texts would be quoted again at each level."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _parts(given: object) -> list[str]:
    inner = given.func if isinstance(given, partial) else given
    digest, held = _Digest(getattr(inner, "__module__", None) or ""), getattr(given, "__dict__", {})
    if isinstance(given, _FUNCTIONS) or not hasattr(given, "__dict__") or "__wrapped__" in held:
        return [digest.of(given)]
    return digest.object(given)


class _Digest:
    """Text of values, the same in every process.

    Args:
        module: package whose code is covered wherever it is installed.
    """

    def __init__(self, module: str) -> None:
        self._package = module.partition(".")[0]
        self._seen: set[int] = set()

    def of(self, value: Any) -> str:
        """Code, or a value."""
        match value:
            case FunctionType():
                text = self._function(value)
            case MethodType():
                of = value.__self__
                held = [self.of(of)] if isinstance(of, type) else self.object(of)
                text = _hashed([self.of(value.__func__), *held])
            case partial():
                text = self.of([value.func, value.args, value.keywords])
            case staticmethod() | classmethod() | property() | cached_property():
                inner = (getattr(value, name, None) for name in ("__func__", "fget", "func"))
                text = self.of(next((one for one in inner if one is not None), None))
            case BuiltinFunctionType():
                text = f"{value.__module__}.{value.__qualname__}"
            case type() if not self._is_library(value.__module__):
                text = _hashed(self._class(value))
            case _ if (wrapped := getattr(value, "__dict__", {}).get("__wrapped__")) is not None:
                text = f"{type(value).__qualname__} {self.of(wrapped)}"
            case _:
                text = self._value(value)
        return text

    def _value(self, value: Any) -> str:
        """Of other objects only the type, as their text may contain addresses."""
        match value:
            case Enum():
                text = f"{type(value).__qualname__} {self.of(value.value)}"
            case tuple() | list():
                text = f"{type(value).__name__}{[self.of(item) for item in value]}"
            case set() | frozenset():
                text = f"set{sorted(self.of(item) for item in value)}"
            case dict():
                text = f"dict{sorted((self.of(k), self.of(v)) for k, v in value.items())}"
            case _ if isinstance(value, _PLAIN):
                text = repr(value)
            case date() | time():  # the text of a user's own zone may contain an address
                text = f"{type(value).__name__} {value.isoformat()}"
            case re.Pattern():
                text = f"{value.pattern!r} {value.flags}"
            case _:
                named = getattr(value, "__qualname__", "")  # a class, or a method of one in C
                text = f"{type(value).__qualname__} {named}".strip()
        return text

    def object(self, given: object) -> list[str]:
        """An object with code: its class and its attributes."""
        if id(given) in self._seen:
            return [type(given).__qualname__]
        self._seen.add(id(given))
        return [self.of(getattr(given, "__dict__", None)), *self._class(type(given))]

    def _class(self, given: type) -> list[str]:
        if id(given) in self._seen:
            return [given.__qualname__]
        self._seen.add(id(given))
        parts = []
        for cls in given.__mro__:
            if not self._is_library(cls.__module__):
                members = {n: m for n, m in vars(cls).items() if _is_code(n)}
                parts += [cls.__qualname__, self.of(members)]
        return parts

    def _function(self, function: FunctionType) -> str:
        library = function.__code__.co_filename.startswith(_LIBRARIES) and not self._is_mine(
            function.__module__ or ""
        )
        if id(function) in self._seen or library:
            return function.__qualname__
        self._seen.add(id(function))
        names = {*_names(function.__code__)}
        used = [(name, self._used(one, names)) for name, one in _named(function)]
        defaults = self.of([function.__defaults__, function.__kwdefaults__])
        return _hashed([self._code(function.__code__), defaults, f"{used}"])

    def _used(self, value: Any, names: set[str]) -> str:
        """The values that a function names; for a module, its members that may be named."""
        if not isinstance(value, ModuleType):
            return self.of(value)
        if id(value) in self._seen or self._is_library(value.__name__):
            return value.__name__
        known: Mapping[str, Any] = vars(value)
        self._seen.add(id(value))
        found = [(n, self._used(known[n], names)) for n in sorted(names) if n in known]
        self._seen.discard(id(value))  # another function may name other members of it
        return _hashed([value.__name__, f"{found}"])

    def _code(self, code: CodeType) -> str:
        consts = [self._code(c) if isinstance(c, CodeType) else self.of(c) for c in code.co_consts]
        return f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {consts}"

    def _is_mine(self, module: str) -> bool:
        return module.partition(".")[0] == self._package

    def _is_library(self, module: str) -> bool:
        if module == "builtins" or module.startswith("pyspark."):
            return True
        if self._is_mine(module) or module == "__main__":
            return False
        file = getattr(sys.modules.get(module), "__file__", None)
        return file is None or file.startswith(_LIBRARIES)


def _is_code(name: str) -> bool:
    return name not in _NOT_CODE and not name.startswith("_abc_")


def _named(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Names outside of a function that it uses, also in its lambdas and comprehensions.

    Sorted, as the digest depends on the order.
    """
    known = function.__globals__
    names = sorted({*_names(function.__code__)})
    yield from ((name, known[name]) for name in names if name in known)
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    yield from ((name, cell.cell_contents) for name, cell in cells if _is_set(cell))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _names(const)


def _is_set(cell: CellType) -> bool:
    """False for a variable that is assigned after the function is defined."""
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True
