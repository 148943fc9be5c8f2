"""What a step must not do: anything by which a batch that is repeated would not come out as before.

Spark's resolved plan tells, as JSON: one call brings all of it. (docs/adr/0022)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import orjson
from pyspark.sql import DataFrame

from state_lib.errors import ConfigurationError
from state_lib.spark.sources import STAR

Node = dict[str, Any]
SELECTED, FILTERED = ("Project", "LogicalRDD"), ("Filter", "LogicalRDD")
"""What Spark makes of a step of single rows."""
SEVERAL = "looks at several rows. Aggregate by groupBy(...).agg(Materialized('store'), ...)"
_CLOCKS = {"Now", "LocalTimestamp", "SparkVersion"}
_SUBQUERIES = {"ListQuery", "InSubquery", "Exists", "ScalarSubquery", "LateralSubquery"}
_FUNCTIONS = ("ScalaAggregator", "SQLFunction", "SQLScalarFunction")
_TO_MOMENTS = {"ParseToDate", "ParseToTimestamp"}
_MOMENTS = {"date", "timestamp", "timestamp_ntz"}
_OF_ROWS = {"AttributeReference", "NamedLambdaVariable"}
_CLASS = re.compile(r'(?<!\\)"class":"([\w.$]+)"')
_WORDS = r"(epoch|now|today|yesterday|tomorrow)\b"
_SPECIAL = re.compile(rf"\s*{_WORDS}", re.IGNORECASE)
_TYPED = re.compile(rf"\b(date|timestamp(_ltz|_ntz)?)\s*r?(['\"])\s*{_WORDS}", re.IGNORECASE)
_REPEAT = "a batch that is repeated after a crash would not come out as before"
_RECORD = f"{_REPEAT}. Put the value into the record where it is produced"


@dataclass(frozen=True)
class Analysed:
    """A frame of no rows, its plan, and all of that in one text: each question is a call."""

    frame: DataFrame
    plan: Any
    json: str

    @classmethod
    def of(cls, frame: DataFrame) -> Analysed:
        """Ask Spark. Raises AnalysisException, ParseException."""
        plan: Any = frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - as pyspark does
        return cls(frame, plan, str(plan.toJSON()))

    @cached_property
    def nodes(self) -> list[Node]:
        """Of the plan, from the top."""
        found: list[Node] = orjson.loads(self.json)
        return found

    @property
    def shape(self) -> tuple[str, ...]:
        """What the plan's nodes are."""
        return tuple(map(kind_of, self.nodes))

    @property
    def expressions(self) -> list[list[Node]]:
        """Those of the uppermost node, each as its nodes from the top."""
        top = self.nodes[0]
        found: list[list[Node]] = top.get("projectList") or [top.get("condition") or []]
        return found


def kind_of(node: Node) -> str:
    """What a node is: the name of its class."""
    return str(node["class"]).rpartition(".")[2]


def calls_python(made: Analysed) -> bool:
    """Whether it calls Python functions."""
    return "PythonUDF" in _seen(made)


def _seen(made: Analysed) -> set[str]:
    return {name.rpartition(".")[2] for name in _CLASS.findall(made.json)}


def judge(made: Analysed, at: str, *, calls: bool = False) -> None:
    """Refuse a plan that reads more than single rows, whatever its shape.

    Args:
        made: the plan.
        at: how errors call the step.
        calls: whether Python functions may be called in it.

    Raises:
        ConfigurationError: the step, why, and what to write instead.
    """
    seen = _seen(made)
    _judge_functions(seen, at, calls=calls)
    if seen & _SUBQUERIES:
        raise ConfigurationError(
            f"{at} asks for other rows by a subquery: {_REPEAT}. Put what it needs into the record"
        )
    if seen & {"AggregateExpression", "WindowExpression"}:
        raise ConfigurationError(f"{at} {SEVERAL}")
    if "VariableReference" in seen:
        raise ConfigurationError(
            f"{at} reads a variable of the session, which may be another one after a restart. "
            "Write the value"
        )
    clocks = sorted(c for c in seen if c.startswith("Current") or c in _CLOCKS)
    if clocks or not made.plan.deterministic():
        what = f"reads {clocks[0]}" if clocks else "gives another value each time, like rand()"
        raise ConfigurationError(f"{at} {what}, and not only its row: {_RECORD}")
    if merged := sorted(c for c in seen if c.startswith("KllSketchMerge")):
        raise ConfigurationError(f"{at} merges by random numbers ({merged[0]}): {_RECORD}")
    for nodes in made.expressions:
        _judge_encryption(nodes, at)
        _judge_moments(nodes, at)


def judge_text(text: str, at: str) -> None:
    """Refuse literals that are read as the moment in which they are parsed: ``date'today'``.

    Args:
        text: the expression as it was written.
        at: how errors call the step.

    Raises:
        ConfigurationError: naming it.
    """
    if found := _TYPED.search(text):
        raise ConfigurationError(_of_a_word(at, f"{found[1]}'{found[4]}'"))


def judge_shape(made: Analysed, wanted: tuple[str, ...], at: str) -> None:
    """Refuse a plan that is more than one step over single rows.

    A plan with more nodes removes rows, or doubles them, or computes a part of the step below it,
    where no dead letter can be made of a row that fails.

    Raises:
        ConfigurationError: naming what Spark made of it, and what to write.
    """
    shape = made.shape
    if others := sorted(set(shape) - {*wanted, "Generate"}):
        raise ConfigurationError(
            f"{at} is no step of single rows: Spark makes {others} of it, by which rows are lost "
            "or doubled. For windows of time (F.window, F.session_window) write "
            "groupBy(...).windowedBy(TimeWindows('1 hour'))"
        )
    if shape[:2] == ("Project", "Project"):
        raise ConfigurationError(
            f"{at} makes a column and uses it in the same step. Write two: the first makes it, by "
            "withColumn(...) or select(...), and the next one uses it"
        )
    if shape != wanted:
        raise ConfigurationError(
            f"{at} makes several rows of one. Write explode(...) as a column of a select of its "
            "own, before this step"
        )
    if f'"name":"{STAR}"'.encode() in orjson.dumps(made.expressions):
        raise ConfigurationError(
            f"{at} has '*' within an expression, which would take in columns that are not yours. "
            "Name the columns: F.struct('a', 'b'). ('*' alone is for select, as an argument of its "
            "own)"
        )


# ---------------------------------------------------------------------- inside


def _judge_functions(seen: set[str], at: str, *, calls: bool) -> None:
    found = sorted(c for c in seen if "UDF" in c or c.startswith(_FUNCTIONS))
    if others := [c for c in found if c != "PythonUDF"]:
        raise ConfigurationError(
            f"{at} calls a function of yours ({others[0]}), and a row on which it fails cannot be "
            "told from the others. Write it in Python, by F.udf(...), or with Spark's built-in "
            "functions, like F.when(...), F.regexp_extract(...) or F.transform(...)"
        )
    if found and not calls:
        raise ConfigurationError(
            f"{at} calls a Python function by a name that it was registered under, which may be "
            "another function after a restart. Call the function itself: f = F.udf(...), f('x')"
        )


def _judge_encryption(nodes: list[Node], at: str) -> None:
    for number, node in enumerate(nodes):
        if kind_of(node) != "AesEncrypt":
            continue
        mode, vector = (_argument(nodes, number, i) for i in (2, 4))
        is_ecb = len(mode) == 1 and str(mode[0].get("value")).upper() == "ECB"
        given = any(kind_of(n) == "Literal" and n.get("value") for n in vector)
        if not is_ecb and (not given or _reads_rows(vector)):
            raise ConfigurationError(
                f"{at} encrypts by aes_encrypt(...) under a random vector, and gives another value "
                f"each time: {_REPEAT}. Give it a vector (iv) as a literal, or hash by sha2(...)"
            )


def _judge_moments(nodes: list[Node], at: str) -> None:
    """Spark's optimizer reads some texts as the moment in which it meets them."""
    for number, node in enumerate(nodes):
        if not _makes_a_moment(node):
            continue
        given = _argument(nodes, number, 0)
        if _makes_a_moment(given[0]):  # checked by itself
            continue
        if kind_of(given[0]) == "RaiseError":  # it returns no text
            continue
        texts = [
            str(n["value"])
            for n in given
            if kind_of(n) == "Literal" and n.get("value") and str(n["dataType"])[:6] == "string"
        ]
        if not texts or _reads_rows(given):
            continue
        if len(given) > 1:
            raise ConfigurationError(
                f"{at} makes a moment of a constant text that is computed ({texts[0]!r}, ...): "
                "write the moment itself, like DATE'2026-01-31'"
            )
        if _SPECIAL.match(texts[0]):
            raise ConfigurationError(_of_a_word(at, repr(texts[0])))


def _makes_a_moment(node: Node) -> bool:
    if kind_of(node) in _TO_MOMENTS:
        return True
    return kind_of(node) == "Cast" and str(node["dataType"]) in _MOMENTS  # other casts read no text


def _of_a_word(at: str, word: str) -> str:
    return (
        f"{at} makes a moment of {word}, which is the time at which it is looked at, and not only "
        f"its row: {_REPEAT}. Write the moment itself, like DATE'2026-01-31'"
    )


def _reads_rows(nodes: list[Node]) -> bool:
    return any(kind_of(node) in _OF_ROWS for node in nodes)


def _argument(nodes: list[Node], number: int, which: int) -> list[Node]:
    """The nodes of one child of a node: they stand in a row, each before its children."""
    start = number + 1
    for _ in range(which):
        start = _end(nodes, start)
    return nodes[start : _end(nodes, start)]


def _end(nodes: list[Node], number: int) -> int:
    end = number + 1
    for _ in range(int(nodes[number]["num-children"])):
        end = _end(nodes, end)
    return end
