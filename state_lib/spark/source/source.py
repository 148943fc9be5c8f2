"""``spark.read.format("holdfast")``, by Spark's Python data source API.

Whoever uses any Python data source has Spark import this module: what it needs itself is imported
when it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from state_lib.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa

    from state_lib.spark.source.target import Target


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
        return StoreReader(target)

    def _found(self) -> Target:
        from state_lib.spark.source.target import find_target  # noqa: PLC0415 - see the module

        if self._target is None:
            self._target = find_target(self.options)
        return self._target


class StoreReader(DataSourceReader):
    """Reads every task that may have a row, each at one marker.

    It has no ``pushFilters``: Spark 4.2.0 keeps what one query's filters leave in the data source
    of the ``load()``, so that another query over the same DataFrame would read no more than that.

    Args:
        target: the store.
    """

    def __init__(self, target: Target) -> None:
        self._target = target

    def partitions(self) -> Sequence[InputPartition]:
        """One for each task; raises as `DefaultSource.schema` if a task cannot be read now."""
        return self._target.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task; runs in an executor."""
        from state_lib.spark.source.metadata import metadata  # noqa: PLC0415 - see the module
        from state_lib.spark.source.partitions import TaskPartition  # noqa: PLC0415 - as above

        if not isinstance(partition, TaskPartition):  # Spark's own, if there are none
            return
        table = self._target.table()
        with partition.opened() as cut:
            beside = metadata(partition.task, cut.marker, cut.snapshot)
            for part in cut.parts:
                yield from table.batches(part, beside)
