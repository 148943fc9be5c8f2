"""Resolves a step when it is declared, on no rows, and refuses what a batch could not repeat.

A batch is repeated after a crash, and must come out as before: an expression may read its row and
nothing else. (docs/adr/0022)
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import orjson
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.types import StructType

from state_lib.declaration import Expression, Generator, Item, Select, Source
from state_lib.errors import ConfigurationError
from state_lib.names import check_column

_BASE = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
}
_NODES = {"Project", "Filter", "Generate", "Expand", "LogicalRDD"}
_CLOCKS = {"Now", "LocalTimestamp", "SparkVersion"}
_SUBQUERIES = {"ListQuery", "InSubquery", "Exists", "ScalarSubquery", "LateralSubquery"}
_GENERATORS: dict[str, Generator] = {"explode": "explode", "explode_outer": "explode_outer"}
_CLASS = re.compile(r'(?<!\\)"class":"([\w.$]+)"')
_ID = re.compile(r'(?<!\\)"id":(\d+)')
_PLAIN = re.compile(r"\w*[A-Za-z_]\w*", re.ASCII)
_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
_LINES = 4
_SEVERAL = "looks at several rows. Aggregate by groupBy(...).agg(Materialized('store'), ...)"
_REPEAT = "a batch that is repeated after a crash would not come out as before"


@dataclass(frozen=True)
class Resolved:
    """An expression, its type (DDL), how Spark calls it, and whether it is a mere column."""

    expression: Expression
    type: str
    name: str
    plain: bool


# ---------------------------------------------------------------------- rows of a source


def ddl_of(schema: StructType | str) -> str:
    """A schema as DDL.

    Raises:
        ConfigurationError: it is none, or one type instead of columns.
        InvalidName: a column begins as ours do.
    """
    if isinstance(schema, str):
        try:
            parsed: Any = StructType.fromDDL(schema)
        except ParseException as error:
            raise ConfigurationError(f"{schema!r} is no DDL: {_said(error)}") from error
    else:
        parsed = schema
    if not isinstance(parsed, StructType):
        raise ConfigurationError(
            f"{schema!r} is one type, not columns: write 'name TYPE, name TYPE'"
        )
    names = parsed.fieldNames()
    for name in names:
        check_column(name)
    lower = [name.lower() for name in names]
    if twice := sorted({name for name in names if lower.count(name.lower()) > 1}):
        raise ConfigurationError(
            f"the columns {twice} of {schema!r} differ in case only, and to Spark they are one: "
            "rename one of them",
            columns=twice,
        )
    return str(parsed.toDDL())


def schema_of(ddl: str) -> StructType:
    """The schema that `ddl_of` was given."""
    parsed: Any = StructType.fromDDL(ddl)
    made: StructType = parsed
    return made


def source_rows(spark: SparkSession, source: Source) -> DataFrame:
    """No rows, with the columns of a source's."""
    columns = dict(_BASE)
    if source.format == "text":
        columns["value"] = "string"
    fields = schema_of(source.schema).fields if source.schema else []
    hidden = {f.name.lower() for f in fields}
    ddl = [f"`{name}` {kind}" for name, kind in columns.items() if name not in hidden]
    ddl += [f"{quoted(f.name)} {f.dataType.simpleString()}" for f in fields]
    jvm: Any = spark._jvm  # noqa: SLF001 - the way to the JVM that pyspark itself takes
    return _no_rows(spark, jvm.org.apache.spark.sql.types.StructType.fromDDL(", ".join(ddl)))


def _no_rows(spark: SparkSession, schema: Any) -> DataFrame:
    none = spark.sparkContext._jsc.emptyRDD().rdd()  # noqa: SLF001 - as above
    session: Any = spark._jsparkSession  # noqa: SLF001 - as above
    return DataFrame(session.internalCreateDataFrame(none, schema, False), spark)  # noqa: FBT003


# ---------------------------------------------------------------------- columns


def quoted(name: str) -> str:
    """A name as Spark SQL reads it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def plain_column(name: str) -> Column:
    """The column of exactly that name."""
    return F.col(quoted(name))


def column_named(rows: DataFrame, name: str, at: str) -> Column:
    """The column of that name, or the field of a struct, as DataFrame takes names."""
    if name in rows.columns:
        return plain_column(name)
    resolved(rows, F.col(name), at)
    return F.col(name)


def name_of(rows: DataFrame, column: Column, at: str) -> str:
    """How Spark calls a column."""
    return resolved(rows, column, at).name


def true_or_null(rows: DataFrame, condition: Column | str, at: str) -> Column:
    """What is counted to count the rows for which a condition is true."""
    column = _column(rows, condition)
    if (found := resolved(rows, column, at)).type != "boolean":
        raise ConfigurationError(f"{at}: {found.expression.text} is {found.type}, no condition")
    return F.nullif(column, F.lit(False))  # noqa: FBT003


def _column(rows: DataFrame, given: Column | str) -> Column:
    """The column that a text names; else it is SQL."""
    if not isinstance(given, str):
        return given
    if given.lower() in (c.lower() for c in rows.columns):
        return plain_column(given)
    return F.expr(given)


# ---------------------------------------------------------------------- steps


def selected(rows: DataFrame, given: list[Any], at: str) -> tuple[Select, DataFrame]:
    """A select as data, and no rows with the columns that it leaves.

    Raises:
        ConfigurationError: the step, and what is wrong with it.
    """
    columns = [column for one in given for column in _columns(rows, one, at)]
    with _asked(at):
        split = [_generator(rows.sparkSession, column) for column in columns]
    if sum(made is not None for made in split) > 1:
        raise ConfigurationError(
            f"{at} makes several rows of one twice: explode one array in a select, the other in "
            "the next"
        )
    whole = _analysed(rows, columns, at)
    names = whole.frame.columns
    generators = sum(made is not None for made in split)
    if len(names) != len(columns) or whole.classes.count("Generate") != generators:
        raise ConfigurationError(
            f"{at} makes {len(names)} columns of {len(columns)}. Name each of them, and of what "
            "makes several rows write explode(...) or explode_outer(...) of an array, with "
            ".alias('name'): of a map, explode(map_entries(...)); of an array of structs, "
            "explode(...) and then its fields"
        )
    _check_names(names, at)
    if generators:
        columns = [c if made is None else made[1] for c, made in zip(columns, split, strict=True)]
    found = _resolved(_analysed(rows, columns, at) if generators else whole, columns, at)
    items = [
        _item(name, one, "" if made is None else made[0], at)
        for name, one, made in zip(names, found, split, strict=True)
    ]
    schema: Any = whole.frame._jdf.schema()  # noqa: SLF001 - as above
    return Select(tuple(items)), _no_rows(rows.sparkSession, schema)


def _columns(rows: DataFrame, given: object, at: str) -> list[Column]:
    """What a select is given, as DataFrame takes it."""
    if isinstance(given, Column):
        return [given]
    if not isinstance(given, str):
        raise ConfigurationError(f"{at} takes columns and names of columns, not {given!r}")
    if given == "*":
        return [plain_column(c) for c in rows.columns]
    return [plain_column(given) if given in rows.columns else F.col(given)]


def _check_names(names: list[str], at: str) -> None:
    lower = [name.lower() for name in names]
    if twice := sorted({name for name in names if lower.count(name.lower()) > 1}):
        raise ConfigurationError(f"{at} leaves several columns {twice}: rename one of them")
    for name in names:
        check_column(name)


def _item(name: str, found: Resolved, rows: Generator, at: str) -> Item:
    if rows and not found.type.startswith("array<"):
        raise ConfigurationError(
            f"{at}: {rows} takes an array, and {found.expression.text} is {found.type}. Of a map "
            "write explode(map_entries(...))"
        )
    return Item(name, found.expression, rows, plain=not rows and found.plain)


def condition_of(rows: DataFrame, given: Column | str, at: str) -> Expression:
    """The condition of a ``where``. Raises as `selected`."""
    column = F.expr(given) if isinstance(given, str) else given
    if not isinstance(column, Column):
        raise ConfigurationError(f"{at} takes a condition, not {given!r}")
    with _asked(at):
        kept = _Analysed.of(rows.where(column))
    _judge(kept, at)
    text = str(kept.plan.condition().sql())
    return Expression(text, _variables(text, kept.json), column)


def resolved(rows: DataFrame, given: Column | str, at: str) -> Resolved:
    """One expression. Raises as `selected`."""
    if not isinstance(given, str | Column):
        raise ConfigurationError(f"{at} takes a Column or SQL text, not {given!r}")
    with _asked(at):
        column = _column(rows, given)
    (found,) = _resolved(_analysed(rows, [column], at), [column], at)
    return found


@dataclass(frozen=True)
class _Analysed:
    """A frame of no rows, its plan, and all of that in one text: each question is a call."""

    frame: DataFrame
    plan: Any
    json: str

    @classmethod
    def of(cls, frame: DataFrame) -> _Analysed:
        plan: Any = frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - as above
        return cls(frame, plan, str(plan.toJSON()))

    @property
    def classes(self) -> list[str]:
        """Names of all that the plan is made of; those of its nodes begin with ``plan:``, too."""
        found = []
        for name in _CLASS.findall(self.json):
            package, _, simple = name.rpartition(".")
            found.append(simple)
            if package.endswith("plans.logical") or simple == "LogicalRDD":
                found.append(f"plan:{simple}")
        return found


def _resolved(made: _Analysed, columns: list[Column], at: str) -> list[Resolved]:
    top = orjson.loads(made.json)[0]
    if not top["class"].endswith(".Project") or len(top["projectList"]) != len(columns):
        raise ConfigurationError(f"{at} wants one value of a row for each expression")
    found = []
    listed = made.plan.projectList()
    for number, (column, (name, kind)) in enumerate(zip(columns, made.frame.dtypes, strict=True)):
        nodes = [node["class"].rpartition(".")[2] for node in top["projectList"][number][:2]]
        if nodes[0] == "AttributeReference":
            text = name if _PLAIN.fullmatch(name) else quoted(name)
        else:
            text = str(listed.apply(number).child().sql())
        plain = nodes[0] == "AttributeReference" or nodes[1] in ("AttributeReference", "Literal")
        expression = Expression(text, _variables(text, made.json), column)
        found.append(Resolved(expression, kind, name, plain))
    return found


def _analysed(rows: DataFrame, columns: list[Column], at: str) -> _Analysed:
    with _asked(at):
        made = _Analysed.of(rows.select(*columns))
    _judge(made, at)
    return made


@contextmanager
def _asked(at: str) -> Iterator[None]:
    """Spark's answer as ours. It is told once: PySpark would log it as well, on a page."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    except (AnalysisException, ParseException) as error:
        if "[MISSING_GROUP_BY]" in str(error):
            raise ConfigurationError(f"{at} {_SEVERAL}") from error
        raise ConfigurationError(f"{at} cannot be computed: {_said(error)}") from error
    finally:
        for logger, was in zip(loggers, before, strict=True):
            logger.disabled = was


def _judge(made: _Analysed, at: str) -> None:
    """Refuse what reads more than its row."""
    seen = set(made.classes)
    if udfs := sorted(c for c in seen if "UDF" in c or c == "ScalaAggregator"):
        raise ConfigurationError(
            f"{at} calls a function of yours ({udfs[0]}), and a row on which it fails cannot be "
            "told from the others yet. Write it with Spark's built-in functions, like F.when(...), "
            "F.regexp_extract(...) or F.transform(...)"
        )
    if seen & _SUBQUERIES:
        raise ConfigurationError(
            f"{at} asks for other rows by a subquery: {_REPEAT}. Put what it needs into the record"
        )
    if seen & {"AggregateExpression", "WindowExpression"}:
        raise ConfigurationError(
            f"{at} looks at several rows. Aggregate by groupBy(...).agg(Materialized('store'), ...)"
        )
    clocks = sorted(c for c in seen if c.startswith("Current") or c in _CLOCKS)
    if clocks or not made.plan.deterministic():
        what = f"reads {clocks[0]}" if clocks else "gives another value each time, like rand()"
        raise ConfigurationError(
            f"{at} {what}, and not only its row: {_REPEAT}. Put the value into the record where it "
            "is produced"
        )
    nodes = {c for c in seen if c.startswith("plan:")}
    if others := sorted(n.removeprefix("plan:") for n in nodes if n[5:] not in _NODES):
        raise ConfigurationError(f"{at} is no step of single rows: Spark makes {others} of it")


def _variables(text: str, json: str) -> str:
    if "lambda" not in text:
        return ""
    numbers: dict[str, str] = {}

    def by_order(match: re.Match[str]) -> str:
        return f'"id":{numbers.setdefault(match[1], str(len(numbers)))}'

    named = re.sub(r'"(name|jvmId)":"[^"]*"', "", _ID.sub(by_order, json))
    return hashlib.sha256(named.encode()).hexdigest()[:12]


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


def _said(error: Exception) -> str:
    """What Spark says, without its plan."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return "\n".join(lines[:_LINES] if isinstance(error, ParseException) else lines[:1])
