"""A digest of what a processor does: another one means other code.

It goes by what Python runs, not by the pickle: that of an importable class is only its name, and
that of another has paths in it.
"""

from __future__ import annotations

import hashlib
import inspect
from types import CodeType, FunctionType
from typing import Any

from pyspark.sql.streaming import StatefulProcessor

_PLAIN = (str, bytes, int, float, bool, type(None))


def meaning_of(processor: StatefulProcessor) -> str:
    """Sixteen digits of the class's functions, of those and the plain values that they name.

    Modules, other objects and what comes from libraries are not looked into.
    """
    seen: set[int] = set()
    parts = [_values(vars(processor))]
    for cls in type(processor).__mro__:
        if cls in (StatefulProcessor, object) or cls.__module__.startswith("abc"):
            continue
        parts.append(cls.__qualname__)
        for name, member in sorted(vars(cls).items()):
            if name.startswith("_abc_") or name in ("__dict__", "__weakref__", "__doc__"):
                continue
            parts += [name, _member(member, cls.__module__, seen)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _member(member: Any, module: str, seen: set[int]) -> str:
    if isinstance(member, staticmethod | classmethod | property):
        inner = member.fget if isinstance(member, property) else member.__func__
        return _member(inner, module, seen)
    if isinstance(member, FunctionType):
        return _function(member, module, seen)
    return _value(member)


def _function(function: FunctionType, module: str, seen: set[int]) -> str:
    if id(function) in seen or function.__module__ != module:
        return function.__qualname__
    seen.add(id(function))
    closed = inspect.getclosurevars(function)
    named = {**closed.globals, **closed.nonlocals}
    used = [f"{name}={_member(value, module, seen)}" for name, value in sorted(named.items())]
    defaults = _value(function.__defaults__ or ()), _values(function.__kwdefaults__ or {})
    return "|".join([_code(function.__code__), *defaults, *used])


def _code(code: CodeType) -> str:
    consts = [_code(c) if isinstance(c, CodeType) else _value(c) for c in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {consts}"


def _values(values: dict[str, Any]) -> str:
    return str({name: _value(value) for name, value in sorted(values.items())})


def _value(value: Any) -> str:
    """Plain values by themselves; of others only their type: their text may have addresses."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, tuple | list):
        return f"{type(value).__name__}{[_value(item) for item in value]}"
    if isinstance(value, frozenset | set):
        return f"set{sorted(_value(item) for item in value)}"
    if isinstance(value, dict):
        return f"dict{sorted((_value(k), _value(v)) for k, v in value.items())}"
    return type(value).__qualname__
