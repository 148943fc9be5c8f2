"""The state that a processor begins with: a DataFrame by key, taken once by each task.

It is committed before the task's first batch. Markers of tasks that have it show that, so after an
interruption the others go on. Tasks that began without one never take one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import structlog
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, GroupedData, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from state_lib.errors import ConfigurationError, Unavailable
from state_lib.processing import Process
from state_lib.protocol.marker import NO_INITIAL, Marker
from state_lib.serdes.kinds import Kind, columns_of
from state_lib.spark.analysis import plain_column
from state_lib.spark.keys import key_bytes, wrong_key
from state_lib.spark.kinds import key_serde_of, sql_of
from state_lib.spark.partitioner import partition_for_key
from state_lib.spark.sources import active

if TYPE_CHECKING:
    from state_lib.declaration import Declaration
    from state_lib.spark.batches import Batches

log = structlog.get_logger(__name__)


def schema_of_initial(given: object, serde: Kind, at: str) -> str:
    """The schema of the rows, Spark's JSON.

    Raises:
        ConfigurationError: their key is of other columns, or has the stream's in another order.
    """
    if not isinstance(given, GroupedData) or not hasattr(given, "_jgd"):
        raise ConfigurationError(
            f"{at}: initialState is to be a DataFrame by key, df.groupBy('key'), not {given!r}"
        )
    columns, names = _columns(given), [name for name, _ in columns_of(serde)]
    if len(columns) != max(1, len(names)):
        count = f"{len(columns)} columns" if columns else "no column"
        raise ConfigurationError(
            f"{at}: initialState is grouped by {count}, the stream by {max(1, len(names))}"
        )
    try:
        key = given._df.select(_key(columns, names).alias("key")).schema.fields[0]  # noqa: SLF001 - it has no other
        fits = key_serde_of(key.dataType) == serde
    except AnalysisException as error:
        raise ConfigurationError(f"{at}: initialState is grouped by no column") from error
    except TypeError:
        fits = False
    if not fits:
        raise ConfigurationError(
            f"{at}: initialState is grouped by {key.dataType.simpleString()}, the stream by "
            f"{sql_of(serde)}: cast one of them"
        )
    called = given._df.select(*columns).columns  # noqa: SLF001 - as above
    if any(
        one.lower() in (n.lower() for n in names) and one.lower() != name.lower()
        for one, name in zip(called, names, strict=False)
    ):
        raise ConfigurationError(
            f"{at}: initialState is grouped by {called}, the stream by {names}: columns are taken "
            "in their order. Group both by the same order"
        )
    schema: Any = given._df.schema  # noqa: SLF001 - as above
    text: str = schema.json()
    return text


@contextmanager
def initial_rows(
    spark: SparkSession, verb: Process, number: int, partitions: int, tasks: Sequence[int]
) -> Iterator[DataFrame]:
    """Rows of some tasks, partition *p* for task *p*: ``task``, ``kind``, ``key``, ``row``.

    Rows without a key belong to nobody: how many there are is logged. They are read in the stream's
    session, whose settings keep partitions as they are; and once: those that are judged are those
    that are taken, whatever another reading would give.

    Raises:
        ConfigurationError: of some a key cannot be kept, or lacks a column.
    """
    grouped, serde = verb.initial, verb.processor.key_serde
    jvm: Any = spark._jvm  # noqa: SLF001 - the way to the JVM that pyspark itself takes
    plan = grouped._df._jdf.queryExecution().analyzed()  # noqa: SLF001 - as above
    session: Any = spark._jsparkSession  # noqa: SLF001 - as above
    with active(spark):  # keys are made by our settings, whatever the rows' session has
        here = DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, plan), spark)
        names = [name for name, _ in columns_of(serde)]
        key = _key(_columns(grouped), names).cast(sql_of(serde))
        columns = [plain_column(name).alias(name) for name in here.columns]
        read = here.select(key.alias("key"), F.struct(*columns).alias("row")).persist()
        try:
            _check_keys(read, serde, verb.name)
            keyed = read.select(key_bytes(serde, F.col("key")).alias("key"), "row")
            task = partition_for_key(spark, F.col("key"), partitions).cast("int")
            rows = keyed.where(F.col("key").isNotNull()).select(
                task.alias("task"), F.lit(number).alias("kind"), "key", "row"
            )
            mine = rows.where(F.col("task").isin(*tasks))
            yield mine.repartitionById(partitions, F.col("task"))
        finally:
            read.unpersist()


def _check_keys(rows: DataFrame, serde: Kind, name: str) -> None:
    """Judge the column ``key`` as that of rows of the stream, which become dead letters."""
    key = F.col("key")
    wrong = wrong_key(serde, key, name)
    why = F.lit(None).cast("string") if wrong is None else wrong
    judged = rows.select(why.alias("why"), key.cast("string").alias("key"))
    bad, none = F.col("why").isNotNull(), key.isNull()
    example = F.first(F.when(bad, F.struct("why", "key")), ignorenulls=True)
    (found,) = judged.agg(F.count_if(bad), F.count_if(~bad & none), example).collect()
    if found[0]:
        raise ConfigurationError(
            f"initialState of processor {name!r} has {found[0]} rows whose key cannot be kept, "
            f"like {found[2]['key']!r} ({found[2]['why']}). Leave them out, by where(...), or mend "
            "them",
            processor=name,
            rows=found[0],
        )
    if found[1]:
        log.warning("initial state without a key is left out", processor=name, rows=found[1])


def take_initial_states(app: Declaration, batches: Batches, spark: SparkSession) -> None:
    """Let each task take the initial states that it has not taken, before its first batch.

    Raises:
        Unavailable: such a task is away.
        ConfigurationError: as `lacking` and `initial_rows`.
        ProcessorFailed: a processor raised on it.
    """
    for number, verb in enumerate(app.processes, len(app.aggregations)):
        given = verb.initial is not None
        tasks = lacking(app.id, verb.name, batches.standing.markers, given=given)
        if away := sorted(set(tasks) & batches.standing.parked.keys()):
            raise Unavailable(
                f"tasks {away} of {app.id!r} have not taken the initial state of {verb.name!r}, "
                "and are away: nothing begins before they have",
                tasks=away,
            )
        if tasks:
            log.info("initial state", processor=verb.name, tasks=tasks)
            with initial_rows(spark, verb, number, app.partitions, tasks) as rows:
                batches.begin_with(rows, tasks, verb.name)


def lacking(app: str, name: str, markers: Sequence[Marker], *, given: bool) -> list[int]:
    """Tasks that are to take the initial state of a processor.

    Args:
        app: the application.
        name: of the processor.
        markers: of all tasks.
        given: whether the job has an initial state for it.

    Raises:
        ConfigurationError: it has run without one: that would be poured over what it keeps. Or the
            job has none any more, and only some tasks have taken it.
    """
    rows = [m.initial.get(name) for m in markers]
    without = [p for p, n in enumerate(rows) if n == NO_INITIAL]
    missing = [p for p, n in enumerate(rows) if n is None]
    if given and without:
        raise ConfigurationError(
            f"processor {name!r} of {app!r} is given an initial state, and tasks {without} have "
            "run it already without: their keys have states by now, which it would be added to. "
            "Leave initialState out, give the processor another name (it begins anew then), or "
            f"begin all of it anew: 'holdfast app reset {app}'",
            processor=name,
            tasks=without,
        )
    begun = any(name in m.begun for m in markers)
    if not given and missing and (begun or len(missing) + len(without) < len(rows)):
        raise ConfigurationError(
            f"tasks {missing} of {app!r} have not taken the initial state of processor {name!r}, "
            "or not all of it, and others have: the driver ended in between. Start the job once "
            "more with initialState; it may be left out as soon as batches are committed",
            processor=name,
            tasks=missing,
        )
    return missing if given else []


def _key(columns: Sequence[Column], names: Sequence[str]) -> Column:
    """What rows are grouped by as one key, with the names of its columns if it has some."""
    if not names:
        return columns[0]
    return F.struct(*(one.alias(name) for one, name in zip(columns, names, strict=True)))


def _columns(grouped: Any) -> list[Column]:
    """The expressions that it is grouped by."""
    from pyspark.sql.classic.column import Column as ClassicColumn  # noqa: PLC0415

    keys = grouped._jgd.groupingExprs()  # noqa: SLF001 - as above
    jvm: Any = grouped.session._jvm  # noqa: SLF001 - as above
    column = jvm.org.apache.spark.sql.classic.ExpressionUtils.column
    return [ClassicColumn(column(keys.apply(number))) for number in range(keys.size())]
