"""Resolves a step when it is declared, on no rows, and refuses what a batch could not repeat.

A batch is repeated after a crash, and must come out as before: an expression may read its row and
nothing else. (docs/adr/0022)
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException
from pyspark.logger import PySparkLogger
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.types import DataType

from state_lib.declaration import Call, Expression, Generator, Item, Select
from state_lib.errors import ConfigurationError
from state_lib.names import check_column
from state_lib.spark.functions.found import Finder, call_of, texts_of
from state_lib.spark.refusals import (
    FILTERED,
    SELECTED,
    SEVERAL,
    Analysed,
    calls_python,
    judge,
    judge_shape,
    judge_text,
    kind_of,
)
from state_lib.spark.sources import active, columns_of, in_another_case, no_rows, said

_GENERATORS: dict[str, Generator] = {"explode": "explode", "explode_outer": "explode_outer"}
_PLAIN = re.compile(r"\w*[A-Za-z_]\w*", re.ASCII)
_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
_UNSTABLE = re.compile(
    r"(?P<text>'(?:[^'\\]|\\.|'')*')"
    r"|(?P<variable>\b[xyz]_\d+\b)"
    r"|\[B@[0-9a-f]+|\d{4,}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+"
)
"""In an expression as it was written: what another process writes in another way."""
_VARIABLE = re.compile(r"\blambda \w+#\d+L?")
"""Of a lambda within the arguments of a Python function, in an expression that is resolved."""


@dataclass(frozen=True)
class Resolved:
    """An expression, how Spark calls it, the column as it was given, and its type."""

    expression: Expression
    name: str
    column: Column
    data_type: DataType

    @property
    def type(self) -> str:
        """Spark's, as DDL."""
        return self.expression.type


# ---------------------------------------------------------------------- columns


def quoted(name: str) -> str:
    """A name as Spark SQL reads it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def plain_column(name: str) -> Column:
    """The column of exactly that name."""
    return F.col(quoted(name))


def column_named(rows: DataFrame, name: str, at: str) -> Column:
    """The column of that name, or the field of a struct, as DataFrame takes names."""
    if name in columns_of(rows):
        return plain_column(name)
    with _asked(rows.sparkSession, at):
        column = F.col(name)
    resolved(rows, column, at)
    return column


def name_of(rows: DataFrame, column: Column, at: str) -> str:
    """How Spark calls a column."""
    return resolved(rows, column, at).name


def _column(rows: DataFrame, given: Column | str, at: str) -> Column:
    """The column that a text names; else it is SQL."""
    if isinstance(given, Column):
        return given
    if not isinstance(given, str):
        raise ConfigurationError(f"{at} takes a Column or SQL text, not {given!r}")
    if given.lower() in (c.lower() for c in columns_of(rows)):
        return plain_column(given)
    return F.expr(given)


# ---------------------------------------------------------------------- steps


def selected(rows: DataFrame, given: list[Any], at: str) -> tuple[Select, DataFrame]:
    """A select as data, and no rows with the columns that it leaves.

    Raises:
        ConfigurationError: the step, and what is wrong with it.
    """
    with _asked(rows.sparkSession, at):
        columns = [column for one in given for column in _columns(rows, one, at)]
        split = [_generator(rows.sparkSession, column) for column in columns]
    if not columns:
        raise ConfigurationError(f"{at} leaves no column: name one")
    generators = sum(made is not None for made in split)
    if generators > 1:
        raise ConfigurationError(
            f"{at} makes several rows of one twice: explode one array in a select, the other in "
            "the next"
        )
    with _asked(rows.sparkSession, at):
        whole = Analysed.of(rows.select(*columns))
    judge(whole, at, calls=True)
    if "Generate" not in whole.shape:
        judge_shape(whole, SELECTED, at)
    names = whole.frame.columns
    if len(names) != len(columns) or whole.shape.count("Generate") != generators:
        raise ConfigurationError(
            f"{at} makes {len(names)} columns of {len(columns)}. Name each of them, and of what "
            "makes several rows write explode(...) or explode_outer(...) of an array, with "
            ".alias('name'): of a map, explode(map_entries(...)); of an array of structs, "
            "explode(...) and then its fields"
        )
    if twice := in_another_case(names):
        raise ConfigurationError(f"{at} leaves several columns {twice}: rename one of them")
    for name in names:
        check_column(name)
    texts = _all_written(columns, whole, at)
    if generators:
        columns = [c if made is None else made[1] for c, made in zip(columns, split, strict=True)]
        found = _resolved(rows, _analysed(rows, columns, at), columns, texts, at)
    else:
        found = _resolved(rows, whole, columns, texts, at)
    items = [
        _item(name, one, "" if made is None else made[0], at)
        for name, one, made in zip(names, found, split, strict=True)
    ]
    schema: Any = whole.frame._jdf.schema()  # noqa: SLF001 - the way that pyspark itself takes
    return Select(tuple(items)), no_rows(rows.sparkSession, schema)


def _columns(rows: DataFrame, given: object, at: str) -> list[Column]:
    """What a select is given, as DataFrame takes it."""
    if isinstance(given, Column):
        return [given]
    if not isinstance(given, str):
        raise ConfigurationError(f"{at} takes columns and names of columns, not {given!r}")
    names = columns_of(rows)
    if given == "*":
        return [plain_column(c) for c in names]
    return [plain_column(given) if given in names else F.col(given)]


def _item(name: str, found: Resolved, rows: Generator, at: str) -> Item:
    if rows and not found.type.startswith("array<"):
        raise ConfigurationError(
            f"{at}: {rows} takes an array, and {found.expression.text} is {found.type}. Of a map "
            "write explode(map_entries(...))"
        )
    return Item(name, found.expression, rows)


def condition_of(rows: DataFrame, given: Column | str, at: str) -> Expression:
    """The condition of a ``where``. Raises as `selected`."""
    column = F.expr(given) if isinstance(given, str) else given
    if not isinstance(column, Column):
        raise ConfigurationError(f"{at} takes a condition, not {given!r}")
    with _asked(rows.sparkSession, at):
        kept = Analysed.of(rows.where(column))
        text = _steady(str(kept.plan.condition().sql()))
    (as_written,) = _all_written([column], kept, at)
    judge_text(as_written, at)
    judge(kept, at, calls=True)
    judge_shape(kept, FILTERED, at)
    if calls_python(kept):
        (taken,) = _without_calls(rows, [column], at)
        return replace(taken, text=text, tree=_tree(as_written), type="boolean")
    return Expression(text, _tree(as_written), "boolean", column=column)


def resolved(rows: DataFrame, given: Column | str, at: str) -> Resolved:
    """One expression. Raises as `selected`."""
    column = _column(rows, given, at)
    made = _analysed(rows, [column], at)
    (found,) = _resolved(rows, made, [column], _all_written([column], made, at), at)
    return found


def each_resolved(rows: DataFrame, given: Sequence[tuple[str, Column | str]]) -> list[Resolved]:
    """Several expressions, each with how errors call it: as `resolved`, and Spark is asked once."""
    if not given:
        return []
    columns = [_column(rows, one, at) for at, one in given]
    at = given[0][0]
    try:
        made = _analysed(rows, columns, at)
        if not calls_python(made):
            return _resolved(rows, made, columns, _all_written(columns, made, at), at)
    except ConfigurationError:
        pass
    # One by one, so that an error names the right one.
    return [resolved(rows, one, at) for at, one in given]


# ---------------------------------------------------------------------- Spark's answers


def _resolved(
    rows: DataFrame, made: Analysed, columns: list[Column], texts: list[str], at: str
) -> list[Resolved]:
    """What Spark made of columns of rows, which were written as ``texts``."""
    if len(made.expressions) != len(columns):
        raise ConfigurationError(f"{at} wants one value of a row for each expression")
    found = []
    listed = made.plan.projectList()
    taken = [Expression("", column=column) for column in columns]
    if calls_python(made):
        taken = _without_calls(rows, columns, at)
    with _asked(made.frame.sparkSession, at):
        for number, field in enumerate(made.frame.schema.fields):
            name, kind = field.name, field.dataType.simpleString()
            nodes = [*map(kind_of, made.expressions[number][:2])]
            is_column = nodes[0] == "AttributeReference"
            if is_column:
                text = name if _PLAIN.fullmatch(name) else quoted(name)
            else:
                text = _steady(str(listed.apply(number).child().sql()))
            plain = is_column or nodes[1] in ("AttributeReference", "Literal")
            judge_text(texts[number], at)
            tree = _tree(texts[number])
            expression = replace(taken[number], text=text, tree=tree, type=kind, plain=plain)
            found.append(Resolved(expression, name, columns[number], field.dataType))
    return found


def _without_calls(rows: DataFrame, columns: list[Column], at: str) -> list[Expression]:
    """Columns without their calls of Python functions, which are beside them.

    Their arguments are judged as all expressions are, and what is left of the columns, too.
    """
    finder = Finder(rows, at)
    with _asked(rows.sparkSession, at):
        split = [finder.without(column) for column in columns]
        beside = finder.rows
    args = [arg for one in finder.found for arg in one.args]
    known = iter(_args(beside, args, at))
    calls: dict[str, Call] = {}
    for one in finder.found:
        own = [next(known) for _ in one.args]
        given, takes = [arg for arg, _ in own], [kind for _, kind in own]
        with _asked(rows.sparkSession, at):
            calls[one.column] = call_of(one, given, takes, at)
    _analysed(beside, [column for column, _ in split], at, calls=False)
    return [
        Expression("", calls=tuple(calls[one.column] for one in own), column=column)
        for column, own in split
    ]


def _args(rows: DataFrame, args: list[Column], at: str) -> list[tuple[Expression, DataType]]:
    """What functions are called on, with its types."""
    if not args:
        return []
    made = _analysed(rows, args, at, calls=False)
    found = _resolved(rows, made, args, [_written(arg) for arg in args], at)
    return [(one.expression, one.data_type) for one in found]


def _analysed(rows: DataFrame, columns: list[Column], at: str, *, calls: bool = True) -> Analysed:
    with _asked(rows.sparkSession, at):
        made = Analysed.of(rows.select(*columns))
    judge(made, at, calls=calls)
    judge_shape(made, SELECTED, at)
    return made


@contextmanager
def _asked(spark: SparkSession, at: str) -> Iterator[None]:
    """Spark's errors as ours. They are reported once: PySpark would log them as well, at length."""
    # Made here: else PySpark would get plain loggers of these names.
    loggers = [PySparkLogger.getLogger(name) for name in _LOGGERS]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        with active(spark):
            yield
    except (AnalysisException, ParseException) as error:
        if "[MISSING_GROUP_BY]" in str(error):
            raise ConfigurationError(f"{at} {SEVERAL}") from error
        raise ConfigurationError(f"{at} cannot be computed: {said(error)}") from error
    except Py4JJavaError as error:
        why = str(error.java_exception).partition("\n")[0]
        raise ConfigurationError(f"{at} cannot be judged: Spark says {why}") from error
    finally:
        for logger, was in zip(loggers, before, strict=True):
            logger.disabled = was


# ---------------------------------------------------------------------- as it was written


def _written(column: Column) -> str:
    """An expression before Spark resolves it: with all options, patterns, schemas and names."""
    made: Any = column._jc  # noqa: SLF001 - as above
    return str(made.node().sql())


def _all_written(columns: list[Column], made: Analysed, at: str) -> list[str]:
    """As `_written`; of what calls Python functions all that is stable of it."""
    with _asked(made.frame.sparkSession, at):
        if not calls_python(made):
            return [_written(column) for column in columns]
        return ["\n".join(texts_of(column)) for column in columns]


def _tree(written: str) -> str:
    """A digest of an expression as it was written, the same in every process.

    Spark's text of a resolved one has no pattern of LIKE ANY, no schema and no options of
    from_json; the one before has them. It also has what is made anew each time: numbers in names
    of a lambda's variables, addresses of byte arrays, moments in the zone of the machine. Variables
    are numbered as they occur; the others are in the resolved text.
    """
    numbers: dict[str, str] = {}

    def fixed(found: re.Match[str]) -> str:
        if found["text"] is not None:
            return found["text"]
        if found["variable"] is not None:
            return numbers.setdefault(found["variable"], f"_{len(numbers)}")
        return "?"

    return hashlib.sha256(_UNSTABLE.sub(fixed, written).encode()).hexdigest()[:16]


def _steady(text: str) -> str:
    """Spark's text of a resolved expression, the same in every process."""
    numbers: dict[str, str] = {}
    return _VARIABLE.sub(lambda v: numbers.setdefault(v[0], f"lambda _{len(numbers)}"), text)


def _generator(spark: SparkSession, column: Column) -> tuple[Generator, Column] | None:
    """``explode`` or ``explode_outer`` and what they are called on, if a column is that."""
    jvm: Any = spark._jvm  # noqa: SLF001 - as above
    made: Any = column._jc  # noqa: SLF001 - as above
    node = _unnamed(made.node())
    parsed = _kind(node) == "SqlExpression"
    if parsed:
        session: Any = spark._jsparkSession  # noqa: SLF001 - as above
        node = _unnamed(session.sessionState().sqlParser().parseExpression(node.expression()))
        column_of = jvm.org.apache.spark.sql.classic.ExpressionUtils.column
    else:
        column_of = jvm.org.apache.spark.sql.Column
    if _kind(node) != "UnresolvedFunction":
        return None
    name = str(node.nameParts().last() if parsed else node.functionName())
    kind = _GENERATORS.get(name.lower())
    if kind is None or node.arguments().size() != 1:
        return None
    return kind, ClassicColumn(column_of(node.arguments().apply(0)))


def _unnamed(node: Any) -> Any:
    return node.child() if _kind(node) == "Alias" else node


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())
