"""A digest of what a processor or a function does: another one means other code.

It goes by what Python runs, not by the pickle: that of an importable class is only its name, and
that of another has paths in it.
"""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterator
from functools import partial
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType
from typing import Any

_PLAIN = (str, bytes, int, float, bool, type(None))
_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType, partial, type)
_NOT_CODE = {"__dict__", "__weakref__", "__doc__", "__module__", "__firstlineno__"}


def meaning_of(*given: object) -> str:
    """Sixteen digits of functions, and of the functions and plain values that they name.

    Of an object, like a `StatefulProcessor`, they are those of its class, and of what it holds.
    What comes from libraries is not looked into, and neither are other objects.
    """
    parts = [part for one in given for part in _parts(one)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _parts(given: object) -> list[str]:
    if isinstance(given, _FUNCTIONS) or not hasattr(given, "__dict__"):
        inner = given.func if isinstance(given, partial) else given
        return [_Digest(getattr(inner, "__module__", None) or "").of(given)]
    found = _Digest(type(given).__module__)
    parts = [found.of(vars(given))]
    for cls in type(given).__mro__:
        if cls.__module__.startswith(("pyspark.", "abc")) or cls is object:
            continue
        members = {n: m for n, m in vars(cls).items() if n not in _NOT_CODE and n[:5] != "_abc_"}
        parts += [cls.__qualname__, found.of(members)]
    return parts


class _Digest:
    """Text of values, the same in every process.

    Args:
        module: of the package whose code is looked into wherever it is installed.
    """

    def __init__(self, module: str) -> None:
        self._package = module.partition(".")[0]
        self._seen: set[int] = set()

    def of(self, value: Any) -> str:
        """A value; of what is neither plain nor code only the type: its text may have addresses."""
        match value:
            case FunctionType():
                text = self._function(value)
            case MethodType():
                text = self.of([value.__func__, getattr(value.__self__, "__dict__", None)])
            case partial():
                text = self.of([value.func, value.args, value.keywords])
            case staticmethod() | classmethod() | property():
                text = self.of(getattr(value, "__func__", None) or getattr(value, "fget", None))
            case tuple() | list():
                text = f"{type(value).__name__}{[self.of(item) for item in value]}"
            case set() | frozenset():
                text = f"set{sorted(self.of(item) for item in value)}"
            case dict():
                text = f"dict{sorted((self.of(k), self.of(v)) for k, v in value.items())}"
            case _ if isinstance(value, _PLAIN):
                text = repr(value)
            case BuiltinFunctionType():
                text = f"{value.__module__}.{value.__qualname__}"
            case _:
                named = getattr(value, "__qualname__", "")  # a class, or a method of one in C
                text = f"{type(value).__qualname__} {named}".strip()
        return text

    def _function(self, function: FunctionType) -> str:
        mine = (function.__module__ or "").partition(".")[0] == self._package
        library = function.__code__.co_filename.startswith(_LIBRARIES) and not mine
        if id(function) in self._seen or library:
            return function.__qualname__
        self._seen.add(id(function))
        used = self.of(_used(function))
        defaults = self.of([function.__defaults__, function.__kwdefaults__])
        return "|".join([self._code(function.__code__), defaults, used])

    def _code(self, code: CodeType) -> str:
        consts = [self._code(c) if isinstance(c, CodeType) else self.of(c) for c in code.co_consts]
        return f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {consts}"


def _used(function: FunctionType) -> dict[str, Any]:
    """What a function names outside of itself, also in lambdas and comprehensions within it.

    In the order in which it names them: the digest goes by it.
    """
    known = function.__globals__
    named = {name: known[name] for name in _names(function.__code__) if name in known}
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {**named, **{name: cell.cell_contents for name, cell in cells if _is_set(cell)}}


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _names(const)


def _is_set(cell: CellType) -> bool:
    """Not yet, of a variable that is assigned behind the function."""
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True
