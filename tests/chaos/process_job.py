"""A processor that chaos tests kill: what it does can be worked out from source and record alone.

Per key it sums what is not late, remembers each reading in a list, and tells of every five minutes
with a reading once, when they are over.
"""

import os
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from state_lib import Application

FIVE_MINUTES = 300_000


class Periods(StatefulProcessor):
    """Uses all kinds of states, and timers that are registered again and again."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.sums = handle.getValueState("sums", "n BIGINT, total BIGINT")
        self.readings = handle.getListState("readings", "x BIGINT")
        self.told = handle.getMapState("told", "until BIGINT", "n BIGINT")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        del key, timerValues
        n, total = self.sums.get() or (0, 0)
        for row in rows:
            n, total = n + 1, total + row.x
            self.readings.appendValue((row.x,))
            self.handle.registerTimer(row.at - row.at % FIVE_MINUTES + FIVE_MINUTES)
        self.sums.update((n, total))
        return iter(())

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        del timerValues
        until = expiredTimerInfo.getExpiryTimeInMs()
        if not self.told.containsKey((until,)):
            self.told.updateValue((until,), (1,))
            yield Row(k=key[0], until=until)

    def close(self) -> None:
        pass


app = Application(os.environ["CHAOS_APP"], partitions=4)
events = app.stream(os.environ["CHAOS_TOPIC"], "k STRING, x BIGINT NOT NULL")
rows = events.withColumn("at", F.unix_millis("timestamp"))
told = rows.groupBy("k").transformWithState(
    Periods(),
    "k STRING, until BIGINT",
    "Append",
    "EventTime",
    name="periods",
    grace="30 minutes",
)
told.to(f"{app.id}-periods")

if __name__ == "__main__":
    app.run()
