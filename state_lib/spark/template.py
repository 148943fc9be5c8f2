"""A query that is built once and put over one batch after another.

To build it takes hundreds of calls to the JVM and an analysis for each column: a good part of a
second for every batch. All batches of a stream have the same columns, so what was analysed for one
is valid for the next after its leaf is replaced by one with the same ids of columns.
(docs/adr/0014)
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame


class Template:
    """One query, by the frame that it was built over.

    What it takes of the JVM is looked up once: each name in a path to a class is a call to it.

    Args:
        over: the frame, a selection of columns.
        built: what was made of it.
    """

    def __init__(self, over: DataFrame, built: DataFrame) -> None:
        self._spark = over.sparkSession
        jvm: Any = self._spark._jvm  # noqa: SLF001 - the way to the JVM that pyspark itself takes
        self._to_seq = jvm.PythonUtils.toSeq
        self._of_rows = jvm.org.apache.spark.sql.classic.Dataset.ofRows
        self._project = jvm.org.apache.spark.sql.catalyst.plans.logical.Project
        self._alias = jvm.org.apache.spark.sql.catalyst.expressions.Alias
        self._none = jvm.scala.Option.empty()
        self._nothing = self._seq([])
        self._columns = _columns(_plan(over))
        self._built = _plan(built)
        places = self._places(self._built)
        self.fits = (
            self._built.subqueriesAll().isEmpty()
            and places * _leaves(_plan(over)) == _leaves(self._built) > 0
        )
        """Whether all that the query reads is the frame: else it cannot be put over another."""

    def over(self, frame: DataFrame) -> DataFrame:
        """The same query over another frame.

        Raises:
            ValueError: it has other columns, or columns of other types.
        """
        plan = _plan(frame)
        if _columns(plan) != self._columns:
            raise ValueError(f"columns {_columns(plan)} where {self._columns} were")
        moved = self._moved(self._built, plan)
        session: Any = self._spark._jsparkSession  # noqa: SLF001 - as above
        return DataFrame(self._of_rows(session, moved), self._spark)

    def _is_place(self, plan: Any) -> bool:
        return (
            plan.nodeName() == "Project"
            and plan.output().size() == len(self._columns)
            and _columns(plan) == self._columns
        )

    def _places(self, plan: Any) -> int:
        if self._is_place(plan):
            return 1
        return sum(self._places(child) for child in _items(plan.children()))

    def _moved(self, plan: Any, leaf: Any) -> Any:
        if self._is_place(plan):
            return self._project(self._seq(self._renamed(plan, leaf)), leaf)
        children = _items(plan.children())
        return plan.withNewChildren(self._seq([self._moved(child, leaf) for child in children]))

    def _renamed(self, old: Any, new: Any) -> list[Any]:
        """The columns of a leaf under the ids of another, which some may have already."""
        pairs = zip(_items(new.output()), _items(old.output()), strict=True)
        return [
            n
            if n.exprId().equals(o.exprId())
            else self._alias(n, o.name(), o.exprId(), o.qualifier(), self._none, self._nothing)
            for n, o in pairs
        ]

    def _seq(self, items: list[Any]) -> Any:
        return self._to_seq(items)


def _plan(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - as above


def _columns(plan: Any) -> list[tuple[str, str]]:
    """Names and types: an expression that was resolved for one type reads another one wrongly."""
    return [(column.name(), column.dataType().sql()) for column in _items(plan.output())]


def _leaves(plan: Any) -> int:
    return int(plan.collectLeaves().size())


def _items(seq: Any) -> list[Any]:
    return [seq.apply(i) for i in range(seq.size())]
