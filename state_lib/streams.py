"""Streams: Kafka Streams' noun, with DataFrame's verbs for rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from state_lib.declaration import Declaration, Select, Source, Step, Where
from state_lib.errors import ConfigurationError, NoSuchVerb
from state_lib.grouped import KGroupedStream
from state_lib.names import check_column

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame


class KStream:
    """Records of a topic after row-wise steps. Every step keeps the record's place in its topic.

    Verbs are DataFrame's own. They raise ConfigurationError, naming the step, where Spark cannot
    resolve an expression, and where it reads more than the row: another row, the clock, a random
    number. A batch that is repeated after a crash must come out as before.
    """

    def __init__(
        self, app: Declaration, source: Source, steps: tuple[Step, ...], rows: DataFrame
    ) -> None:
        self._app, self._source, self._steps, self._rows = app, source, steps, rows

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        from state_lib.spark.sources import columns_of  # noqa: PLC0415 - needs PySpark

        return columns_of(self._rows)

    def __getitem__(self, name: str) -> Column:
        """A column by name."""
        from state_lib.spark.analysis import column_named  # noqa: PLC0415 - needs PySpark

        return column_named(self._rows, name, self._at("[...]"))

    def __getattr__(self, name: str) -> Column:
        """A column by name, where no verb is called so."""
        if name.startswith("_"):
            raise AttributeError(f"a stream has no attribute {name!r}")
        if name not in self.columns:
            raise NoSuchVerb(
                f"stream of {self._source.topic!r} has no verb and no column {name!r}; its columns "
                f"are {self.columns}",
                name=name,
            )
        return self[name]

    def select(self, *cols: Column | str | list[Column | str]) -> KStream:
        """The columns that rows have from there on; ``*`` stands for those of now.

        One of them may be ``explode(...)`` or ``explode_outer(...)`` of an array.
        """
        from state_lib.spark.analysis import selected  # noqa: PLC0415 - needs PySpark

        given: list[Any] = []
        for col in cols:
            given.extend(col if isinstance(col, list | tuple) else [col])
        return self._select(selected(self._rows, given, self._at("select")))

    def selectExpr(self, *expr: str | list[str]) -> KStream:  # noqa: N802 - PySpark's
        """The columns that rows have from there on, each as SQL text; ``*`` as in `select`."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - needs PySpark

        from state_lib.spark.analysis import selected  # noqa: PLC0415 - as above

        texts: list[str] = []
        for one in expr:
            texts.extend(one if isinstance(one, list | tuple) else [one])
        given = [text if text == "*" else F.expr(text) for text in texts]
        return self._select(selected(self._rows, given, self._at("selectExpr")))

    def withColumn(self, colName: str, col: Column) -> KStream:  # noqa: N802, N803 - PySpark's
        """Add or replace a column."""
        return self._with_columns({colName: col}, "withColumn")

    def withColumns(self, colsMap: Mapping[str, Column]) -> KStream:  # noqa: N802, N803 - PySpark's
        """Add or replace columns; each expression sees the columns before the call."""
        return self._with_columns(dict(colsMap), "withColumns")

    def withColumnRenamed(self, existing: str, new: str) -> KStream:  # noqa: N802 - PySpark's
        """Rename a column. One that does not exist is refused."""
        at = self._at("withColumnRenamed")
        self._known([existing], at)
        check_column(new)
        from state_lib.spark.analysis import plain_column, selected  # noqa: PLC0415 - as above

        columns = [
            plain_column(c).alias(new) if c.lower() == existing.lower() else plain_column(c)
            for c in self.columns
        ]
        return self._select(selected(self._rows, columns, at))

    def drop(self, *cols: Column | str) -> KStream:
        """Without some columns. One that does not exist is refused."""
        from state_lib.spark.analysis import name_of, plain_column, selected  # noqa: PLC0415

        at = self._at("drop")
        names = [c if isinstance(c, str) else name_of(self._rows, c, at) for c in cols]
        self._known(names, at)
        gone = {name.lower() for name in names}
        kept = [plain_column(c) for c in self.columns if c.lower() not in gone]
        return self._select(selected(self._rows, kept, at))

    def where(self, condition: Column | str) -> KStream:
        """Keep rows for which the condition is true."""
        return self._where(condition, "where")

    def filter(self, condition: Column | str) -> KStream:
        """Keep rows for which the condition is true: `where` by its other name in PySpark."""
        return self._where(condition, "filter")

    def groupBy(self, *cols: Column | str | list[Column | str]) -> KGroupedStream:  # noqa: N802
        """Group by columns or expressions; the bytes of the key decide the task.

        Text is kept as UTF-8, whole numbers as int64 (eight bytes), bytes as they are; booleans,
        dates, timestamps and decimals of up to 18 digits so that they sort. Of several columns, or
        of a struct, the key is a struct (docs/how-to/keys-and-values.md). Rows without a key are
        skipped and counted; those that lack a column of theirs are dead letters.
        """
        from state_lib.spark.grouping import grouped  # noqa: PLC0415 - needs PySpark

        given: list[Any] = []
        for col in cols:
            given.extend(col if isinstance(col, list | tuple) else [col])
        return KGroupedStream(self, grouped(self._rows, given, self._at("groupBy")))

    # ------------------------------------------------------------------ inside

    def _with_columns(self, columns: Mapping[str, Any], verb: str) -> KStream:
        from pyspark.sql import Column  # noqa: PLC0415 - declarations must not import it

        from state_lib.spark.analysis import plain_column, selected  # noqa: PLC0415

        at = self._at(verb)
        for name, col in columns.items():
            check_column(name)
            if not isinstance(col, Column):
                raise ConfigurationError(
                    f"{at}: {name!r} is to be {col!r}, which is no Column: write F.col(...), "
                    "F.lit(...) or F.expr(...)"
                )
        new = {name.lower(): col.alias(name) for name, col in columns.items()}
        kept = [new.pop(c.lower(), None) for c in self.columns]
        old = [plain_column(c) for c in self.columns]
        made = [o if k is None else k for o, k in zip(old, kept, strict=True)]
        return self._select(selected(self._rows, [*made, *new.values()], at))

    def _select(self, made: tuple[Select, DataFrame]) -> KStream:
        step, rows = made
        return KStream(self._app, self._source, (*self._steps, step), rows)

    def _where(self, condition: Column | str, verb: str) -> KStream:
        from state_lib.spark.analysis import condition_of  # noqa: PLC0415 - needs PySpark

        step = Where(condition_of(self._rows, condition, self._at(verb)))
        return KStream(self._app, self._source, (*self._steps, step), self._rows)

    def _known(self, names: list[str], at: str) -> None:
        known = {c.lower() for c in self.columns}
        if missing := [name for name in names if name.lower() not in known]:
            raise ConfigurationError(f"{at}: there is no column {missing} among {self.columns}")

    def _at(self, verb: str) -> str:
        """How errors call the next step."""
        name, number = self._source.topic, len(self._steps) + 1
        return f"application {self._app.id!r}, stream {name!r}, step {number}, {verb}"
