"""``spark.read.format("holdfast")``, by Spark's Python data source API.

Whoever uses any Python data source has Spark import this module: what it needs itself is imported
when it is used.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from state_lib.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa

    from state_lib.spark.source.target import Target

_ASKS_FOR_FILTERS = "pyspark.sql.worker.data_source_pushdown_filters"


class DefaultSource(DataSource):
    """A store of an application, live or in snapshots. Options: `state_lib.spark.source.options`.

    It is made in a process of Spark's, and travels from there to others: it holds no connection and
    no secret.
    """

    _target: Target | None = None

    @classmethod
    def name(cls) -> str:
        """The format."""
        return "holdfast"

    def schema(self) -> StructType:
        """As the store's declaration says.

        Raises:
            HoldfastError: an option, or what it names, is wrong, or nobody can be asked.
        """
        return self._found().table().schema

    def reader(self, schema: StructType) -> StoreReader:
        """What reads the store.

        Raises:
            InvalidRequest: somebody gave a schema that is not that of the store.
        """
        target = self._found()
        ours = target.table().schema
        if [(f.name, f.dataType) for f in schema] != [(f.name, f.dataType) for f in ours]:
            raise InvalidRequest(
                f"the schema follows from the store: leave .schema(...) out, and name columns by "
                f"the option 'columns'; it is {ours.simpleString()}, not {schema.simpleString()}"
            )
        return FilteringReader(target) if _filters_are_asked_for() else StoreReader(target)

    def _found(self) -> Target:
        from state_lib.spark.source.target import find_target  # noqa: PLC0415 - see the module

        if self._target is None:
            self._target = find_target(self.options)
        return self._target


class StoreReader(DataSourceReader):
    """Reads every task that may have a row, each at one marker.

    Args:
        target: the store.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._keys = target.keys

    def partitions(self) -> Sequence[InputPartition]:
        """One for each task; raises as `DefaultSource.schema` if a task cannot be read now."""
        return self._target.partitions(self._keys)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task; runs in an executor."""
        from state_lib.spark.source.metadata import metadata  # noqa: PLC0415 - see the module
        from state_lib.spark.source.partitions import TaskPartition  # noqa: PLC0415 - as above

        if not isinstance(partition, TaskPartition):  # Spark's own, where there is nothing to read
            return
        table = self._target.table()
        with partition.opened() as cut:
            beside = metadata(partition.task, cut.marker, cut.snapshot)
            for part in cut.parts:
                yield from table.batches(part, beside)


class FilteringReader(StoreReader):
    """Asks for some keys alone, where filters leave no others.

    Apart, because Spark refuses a reader that has `pushFilters` while its setting for it,
    ``spark.sql.python.filterPushdown.enabled``, is off.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Look for equality of keys; Spark judges all filters again."""
        from state_lib.spark.source.filters import keys_left  # noqa: PLC0415 - see the module

        left = keys_left(filters, self._target.spec)
        if left is not None:
            self._keys = left if self._keys is None else self._keys & left
        return filters


def _filters_are_asked_for() -> bool:
    """Whether this process is the one in which Spark pushes filters: it does so if that is on."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _ASKS_FOR_FILTERS in sys.modules or getattr(main, "name", None) == _ASKS_FOR_FILTERS
