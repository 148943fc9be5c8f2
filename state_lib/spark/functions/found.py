"""Takes calls of Python functions out of the expressions of a step, when it is declared.

Spark evaluates them beside the expressions that they stand in, for all rows of a batch, and one
row on which a function raises ends it. So each call becomes a column of its own, made before the
step by a function that never raises (`Caught`, and `CaughtRows` of several rows at a time). In its
place stands that column's value if the function came to its end, else an error, which `attempt`
tells from others. What does not use the value does not fail.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, _parse_datatype_json_string
from pyspark.util import PythonEvalType

from state_lib.declaration import Call, CallKind, Expression
from state_lib.driver.meaning import meaning_of
from state_lib.errors import ConfigurationError
from state_lib.executor.caught import FINE, VALUE, Caught, result_type
from state_lib.executor.caught_rows import CaughtRows
from state_lib.executor.process.values import checked
from state_lib.names import RESERVED
from state_lib.spark.sources import empty

CALL = f"{RESERVED}call"
"""Begins the names of columns that hold what calls have given."""
_KINDS: dict[int, CallKind] = {
    PythonEvalType.SQL_BATCHED_UDF: "row",
    PythonEvalType.SQL_ARROW_BATCHED_UDF: "row",
    PythonEvalType.SQL_SCALAR_PANDAS_UDF: "pandas",
    PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF: "pandas-iter",
    PythonEvalType.SQL_SCALAR_ARROW_UDF: "arrow",
    PythonEvalType.SQL_SCALAR_ARROW_ITER_UDF: "arrow-iter",
}


@dataclass(frozen=True)
class Found:
    """A call as it stands in an expression.

    Attributes:
        name: of the function, as Spark calls it.
        column: what stands in its place.
        level: 0 if it is called on no other call's result, else one more than those.
        command: the function, pickled by PySpark.
        gives: the type of its results.
        args: what it is called on, with those columns in the place of other calls.
        keywords: of each argument the name by which it is given, or nothing.
        kind: what it is given at a time.
    """

    name: str
    column: str
    level: int
    command: bytes
    gives: DataType
    args: tuple[Column, ...]
    keywords: tuple[str, ...]
    kind: CallKind


class Finder:
    """Of one step: calls of all of its expressions are numbered on.

    Args:
        rows: no rows, with the columns of before the step.
        at: how errors call the step.
    """

    def __init__(self, rows: DataFrame, at: str) -> None:
        self._spark, self._rows, self._at = rows.sparkSession, rows, at
        jvm: Any = self._spark._jvm  # noqa: SLF001 - the way to the JVM that pyspark itself takes
        self._session: Any = self._spark._jsparkSession  # noqa: SLF001 - as above
        self._column_of = jvm.org.apache.spark.sql.classic.ExpressionUtils.column
        self._to_seq = jvm.PythonUtils.toSeq
        self.found: list[Found] = []

    def without(self, column: Column) -> tuple[Column, list[Found]]:
        """A column without its calls, and those, inner ones first.

        Raises:
            ConfigurationError: one that cannot be called so that a row alone fails.
        """
        before = len(self.found)
        made, level = self._rewritten(self._expression(column))
        if level < 0:
            return column, []
        return ClassicColumn(self._column_of(made)), self.found[before:]

    @property
    def rows(self) -> DataFrame:
        """No rows, with the columns of calls beside the others."""
        schema: Any = self._rows._jdf.schema()  # noqa: SLF001 - as above
        for one in self.found:
            kind = self._session.parseDataType(result_type(one.gives).json())
            schema = schema.add(one.column, kind)
        return empty(self._spark, schema)

    # ------------------------------------------------------------------ inside

    def _expression(self, column: Column) -> Any:
        return self._session.expression(column._jc)  # noqa: SLF001 - as above

    def _rewritten(self, node: Any) -> tuple[Any, int]:
        """A node without calls below it, and their greatest level; -1 if there are none."""
        children = [self._rewritten(child) for child in items(node.children())]
        level = max((below for _, below in children), default=-1)
        if kind_of_node(node) == "PythonUDF":
            return self._taken(node, [child for child, _ in children], level + 1), level + 1
        if level < 0:
            return node, level
        return node.withNewChildren(self._to_seq([child for child, _ in children])), level

    def _taken(self, call: Any, args: list[Any], level: int) -> Any:
        name = str(call.name())
        kind = _KINDS.get(int(call.evalType()))
        if kind is None:
            raise ConfigurationError(
                f"{self._at} calls {name!r}, a function of groups of rows, and an expression has "
                "but its own row. Write one that gives a value for each row, by F.udf(...), "
                "pandas_udf(...) or arrow_udf(...); of the rows of a key, aggregate(...) or "
                "transformWithStateInPandas(...) after groupBy(...)"
            )
        if len(call.func().broadcastVars()):
            raise ConfigurationError(
                f"{self._at}: function {name!r} has a broadcast variable, or is larger than a "
                "mebibyte with what it holds. Whether it is the same after a restart cannot be "
                "told then. Let it read that from an installed module"
            )
        keywords = []
        for number, arg in enumerate(args):
            named = kind_of_node(arg) == "NamedArgumentExpression"
            keywords.append(str(arg.key()) if named else "")
            args[number] = arg.child() if named else arg
        _judge_args(f"{self._at}: function {name!r}", kind, keywords)
        one = Found(
            name=name,
            column=f"{CALL}{len(self.found)}",
            level=level,
            command=_bytes_of(call.func().command()),
            gives=_parse_datatype_json_string(call.dataType().json()),
            args=tuple(ClassicColumn(self._column_of(arg)) for arg in args),
            keywords=tuple(keywords),
            kind=kind,
        )
        self.found.append(one)
        held = F.col(one.column)
        error = F.raise_error(F.lit(f"{name} gave no value"))
        value = F.when(held.getField(FINE), held.getField(VALUE)).otherwise(error)
        return self._expression(value)


def _judge_args(at: str, kind: CallKind, keywords: Sequence[str]) -> None:
    if kind == "row":
        return
    if not keywords:
        raise ConfigurationError(
            f"{at} is one of several rows at a time, and is called on no column: it could not know "
            "how many rows there are. Give it one, like F.lit(0)"
        )


def call_of(one: Found, args: Sequence[Expression], takes: Sequence[DataType], at: str) -> Call:
    """A call as data.

    Args:
        one: as it was found.
        args: what it is called on.
        takes: their types.
        at: how errors call the step.

    Raises:
        ConfigurationError: a type that Arrow does not carry, or that cannot be checked.
    """
    try:
        checked(one.gives)
        for kind in (one.gives, *takes):
            to_arrow_type(kind, timezone="UTC")
    except Exception as error:
        raise ConfigurationError(
            f"{at}: function {one.name!r} takes {[t.simpleString() for t in takes]} and gives "
            f"{one.gives.simpleString()}, not all of which Python can be given: {error}"
        ) from error
    try:
        function, _ = pickle.loads(one.command)  # noqa: S301 - PySpark has just pickled it
    except Exception as error:
        raise ConfigurationError(
            f"{at}: function {one.name!r} cannot be made of its pickle, as executors do: {error}"
        ) from error
    how = one.command, one.keywords, one.gives, at
    return Call(
        name=one.name,
        column=one.column,
        level=one.level,
        code=meaning_of(function),
        gives=one.gives.simpleString(),
        args=tuple(args),
        keywords=one.keywords,
        kind=one.kind,
        takes=tuple(takes),
        pickle=hashlib.sha256(one.command).hexdigest(),
        at=at,
        function=Caught(*how) if one.kind == "row" else CaughtRows(*how, one.kind),
    )


def texts_of(column: Column) -> list[str]:
    """All texts of an expression with calls as it was written, the same in every process."""
    made: Any = column._jc  # noqa: SLF001 - as above
    texts, _ = _texts(made.node())
    return texts


def _texts(node: Any) -> tuple[list[str], bool]:
    """Of a node of PySpark's, and whether there are calls: its own text has addresses then."""
    if kind_of_node(node) == "ExpressionColumnNode":
        return _texts_within(node.expression())
    below = [_texts(child) for child in items(node.children())]
    if not any(calls for _, calls in below):
        return [str(node.sql())], False
    return [_own(node), *(text for texts, _ in below for text in texts)], True


def _texts_within(node: Any) -> tuple[list[str], bool]:
    """As `_texts`, of Catalyst's, which has PySpark's within."""
    kind, children = kind_of_node(node), items(node.children())
    if kind == "ColumnNodeExpression":
        return _texts(node.node())
    if not children and kind != "PythonUDF":
        return [str(node.sql())], False
    below = [_texts_within(child) for child in children]
    texts = [_own(node), *(text for texts, _ in below for text in texts)]
    return texts, kind == "PythonUDF" or any(calls for _, calls in below)


def _own(node: Any) -> str:
    """What a node says beside its children: names, numbers and types."""
    parts = [kind_of_node(node)]
    if parts == ["PythonUDF"]:  # its other numbers say how Spark would have called it
        return " ".join([*parts, str(node.name()), str(node.dataType().sql())])
    for one in (node.productElement(i) for i in range(node.productArity())):
        if isinstance(one, str | bool | int | float):
            parts.append(str(one))
        elif hasattr(one, "getClass") and _is_type(str(one.getClass().getName())):
            parts.append(str(one.sql()))
    return " ".join(parts)


def _is_type(name: str) -> bool:
    return ".sql.types." in name and name.rstrip("$").endswith("Type")


def _bytes_of(command: Any) -> bytes:
    """Of a sequence of Scala's."""
    return bytes(int(one) & 0xFF for one in str(command.mkString(",")).split(","))


def items(seq: Any) -> list[Any]:
    """Of a sequence of Scala's."""
    return [seq.apply(i) for i in range(seq.size())]


def kind_of_node(node: Any) -> str:
    """The name of its class."""
    return str(node.getClass().getSimpleName())
