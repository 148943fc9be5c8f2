"""Processors as users write them: plain PySpark, nothing of ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from state_lib import Application

HOUR = 3_600_000
BEAT = "device STRING NOT NULL, at BIGINT"


class Silence(StatefulProcessor):
    """Says of each device when it was silent for an hour."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle, self.seen = handle, handle.getValueState("seen", "at BIGINT")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        del key, timerValues
        old = self.seen.get()
        at = max([r.at for r in rows] + ([old[0]] if old else []))
        if old:
            self.handle.deleteTimer(old[0] + HOUR)
        self.seen.update((at,))
        self.handle.registerTimer(at + HOUR)
        return iter(())

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        del timerValues
        self.seen.clear()
        yield Row(device=key[0], silent_at=expiredTimerInfo.getExpiryTimeInMs())

    def close(self) -> None:
        pass


class Known(Silence):
    """Knows of devices from the start."""

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        for _ in self.handleInputRows(key, [initialState], timerValues):
            pass


def silence(app: Application) -> None:
    beats = app.stream("beats", BEAT).groupBy("device")
    told = beats.transformWithState(
        Silence(), "device STRING, silent_at BIGINT", "Append", "EventTime", name="silence"
    )
    told.to("silent")


class Ordered(StatefulProcessor):
    """Yields the times of rows as they come; raises on the device ``bad``."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._seen = handle.getValueState("n", "n BIGINT")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        del timerValues
        if key[0] == "bad":
            raise ValueError("it is")
        for row in rows:
            yield Row(device=key[0], at=row.at)

    def close(self) -> None:
        pass


class Doing(StatefulProcessor):
    """Does what a test says: functions of the processor, the key and what Spark hands over."""

    def __init__(self, asked: Any, on_rows: Any, on_timer: Any = None) -> None:
        self.asked, self.on_rows, self.on_timer = asked, on_rows, on_timer

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        for name, how in self.asked.items():
            setattr(self, name, how(handle, name))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        return self.on_rows(self, key, rows, timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        if self.on_timer is None:
            return iter(())
        return self.on_timer(self, key, timerValues, expiredTimerInfo)

    def close(self) -> None:
        pass


class Counting(Doing):
    """Counts in ``n`` how many rows it begins with."""

    n: Any

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        del key, initialState, timerValues
        self.n.update(((self.n.get() or (0,))[0] + 1,))
