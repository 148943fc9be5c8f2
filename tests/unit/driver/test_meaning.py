"""What changes the digest of a processor's code. No JVM."""

from __future__ import annotations

import datetime as dt
import json
import re
import sys
from decimal import Decimal
from enum import Enum
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any
from uuid import UUID

import pytest

from state_lib.driver.meaning import meaning_of
from tests.support.processors import Doing

HOUR = 1


def helper(x: Any) -> Any:
    return x


def other(x: Any) -> Any:
    return x + 1


def plainly(_: Any, __: Any, rows: Any, ___: Any) -> Any:
    return iter([helper(rows), HOUR])


def in_a_generator(_: Any, __: Any, rows: Any, ___: Any) -> Any:
    return iter([max(helper(row) + HOUR for row in rows)])


def in_a_comprehension(_: Any, __: Any, rows: Any, ___: Any) -> Any:
    return iter([helper(row) + HOUR for row in rows])


def in_a_lambda(_: Any, __: Any, rows: Any, ___: Any) -> Any:
    return iter(sorted(rows, key=lambda row: helper(row) + HOUR))


def meaning(function: Any, **known: Any) -> str:
    """Of a processor that does this, where its module has other things under these names."""
    there = FunctionType(function.__code__, {**globals(), **known}, function.__name__)
    return meaning_of(Doing({}, there))


@pytest.mark.parametrize("function", [plainly, in_a_generator, in_a_comprehension, in_a_lambda])
def test_what_it_names_counts_wherever_it_names_it(function: Any) -> None:
    one = meaning(function)
    assert meaning(function) == one
    assert meaning(function, HOUR=2) != one
    assert meaning(function, helper=other) != one
    assert meaning(function, unrelated=2) == one


def test_a_variable_that_has_no_value_yet_is_nothing() -> None:
    def made() -> Any:
        def function(_: Any, __: Any, rows: Any, ___: Any) -> Any:
            return later(rows)

        found = meaning_of(Doing({}, function))
        later = iter
        return found

    assert made() == made()


def module_of(name: str, code: str) -> ModuleType:
    """A user's own, as one beside the job."""
    made = ModuleType(name)
    made.__file__ = f"/job/{name}.py"
    exec(compile(code, made.__file__, "exec"), vars(made))  # noqa: S102 - written below
    return made


RULES = """
from functools import lru_cache
limit = {limit}
def inner(x): return x + limit
@lru_cache
def classify(x): return inner(x)
class Rules:
    def __init__(self): self.more = 1
    def method(self, x): return self.other(x)
    def other(self, x): return x + {limit}
    @staticmethod
    def plain(x): return x * {limit}
def unrelated(x): return x + {unrelated}
"""
USES = {
    "module": "import rules\ndef used(x): return rules.classify(x)",
    "module-value": "import rules\ndef used(x): return [rules.limit for _ in x]",
    "cached": "from rules import classify\ndef used(x): return classify(x)",
    "cached-itself": "from rules import classify as used",
    "method": "from rules import Rules\nused = Rules().method",
    "method-within": "from rules import Rules\nheld = Rules().method\ndef used(x): return held(x)",
    "class": "from rules import Rules\ndef used(x): return Rules().method(x)",
    "static": "import rules\ndef used(x): return rules.Rules.plain(x)",
    "partial": "from functools import partial\nimport rules\nused = partial(rules.classify, 1)",
}


@pytest.mark.parametrize("code", USES.values(), ids=USES.keys())
def test_what_is_behind_a_module_a_cache_or_a_method_counts(
    monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    def meaning(limit: int, unrelated: int = 0) -> str:
        rules = module_of("rules", RULES.format(limit=limit, unrelated=unrelated))
        monkeypatch.setitem(sys.modules, "rules", rules)
        return meaning_of(module_of("job", code).used)

    assert meaning(1) == meaning(1) == meaning(1, unrelated=1)
    assert meaning(2) != meaning(1)


class Grade(Enum):
    LOW = 1
    HIGH = 2


VALUES: dict[str, tuple[Any, Any]] = {
    "date": (dt.date(2020, 1, 1), dt.date(2020, 1, 2)),
    "moment": (dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.datetime(2020, 1, 2, tzinfo=dt.UTC)),
    "time": (dt.time(1), dt.time(2)),
    "length": (dt.timedelta(1), dt.timedelta(2)),
    "decimal": (Decimal("1.0"), Decimal("1.00")),
    "uuid": (UUID(int=1), UUID(int=2)),
    "enum": (Grade.LOW, Grade.HIGH),
    "pattern": (re.compile("a" * 300 + "b"), re.compile("a" * 300 + "c")),
    "flags": (re.compile("a"), re.compile("a", re.IGNORECASE)),
    "path": (Path("a"), Path("b")),
}


@pytest.mark.parametrize(("one", "two"), VALUES.values(), ids=VALUES.keys())
def test_constants_that_are_no_numbers_count(one: Any, two: Any) -> None:
    def holding(value: Any) -> Any:
        return lambda _: value

    assert meaning_of(holding(one)) == meaning_of(holding(one)) != meaning_of(holding(two))
    assert meaning(plainly, HOUR=one) != meaning(plainly, HOUR=two)


def test_an_object_that_holds_its_own_method_has_a_meaning() -> None:
    class Own:
        def __init__(self) -> None:
            self.handlers = {"a": self.method}

        def method(self, x: Any) -> Any:
            return x

    assert meaning_of(Own().method) == meaning_of(Own().method)


def test_libraries_are_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else another version of them would be other code."""

    def named(x: Any) -> Any:
        return json.dumps(x)

    before = meaning_of(named)
    with monkeypatch.context() as patch:
        patch.setattr(json, "dumps", helper)
        after = meaning_of(named)
    assert after == before


def test_helpers_of_helpers_take_no_time() -> None:
    """Texts within texts are quoted anew each time."""
    lines = [f"def f{n}(x): return f{n + 1}(x)" for n in range(100)]
    code = "\n".join([*lines, "def f100(x): return x + {more}"])
    one, two = (module_of("job", code.format(more=more)).f0 for more in (1, 2))
    assert meaning_of(one) != meaning_of(two)
