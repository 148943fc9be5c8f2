"""A count by key as a processor of Spark's: the same class for Holdfast and for Spark."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

RESULTS = "key BINARY, n BIGINT"


class Counting(StatefulProcessor):
    """A value state for each key, and a row for each key and batch."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """One state."""
        self.n = handle.getValueState("n", "n BIGINT")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        """Count."""
        del timerValues
        before = self.n.get()
        n = (before[0] if before else 0) + sum(1 for _ in rows)
        self.n.update((n,))
        yield Row(key=key[0], n=n)

    def close(self) -> None:
        """Nothing to close."""
