"""Processors that run under Spark and under Holdfast alike; two are of Spark's documentation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

READING = "id STRING, temperature BIGINT"
COUNTED = "id STRING, count BIGINT, violations BIGINT"
SAID = "id STRING, said STRING"
DAY = 24 * 3_600_000
FIVE_SECONDS, TEN_SECONDS = 5_000, 10_000


class Violations(StatefulProcessor):
    """Of Spark's documentation: counts readings, and keeps how many were too hot."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.violations = handle.getValueState("numViolations", "value INT")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        del timerValues
        count, new = 0, 0
        for row in rows:
            if row.temperature is not None:
                count += 1
                new += row.temperature > 100
        yield Row(id=key[0], count=count, violations=self.added(new))

    def added(self, new: int) -> int:
        known: Any = self.violations.get() if self.violations.exists() else (0,)
        (before,) = known
        self.violations.update((before + new,))
        return int(before + new)

    def close(self) -> None:
        pass


class ViolationsInPandas(Violations):
    """The same, as Spark's documentation has it for frames."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        del timerValues
        count, new = 0, 0
        for frame in rows:
            count += frame.count().get("temperature")
            hot = frame.loc[frame["temperature"] > 100]
            new += hot.count().get("temperature")
        yield pd.DataFrame({"id": key, "count": count, "violations": self.added(new)})


class Top(StatefulProcessor):
    """Keeps the hottest readings in a list, and how often each was seen in a map."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.top = handle.getListState("top", "t BIGINT")
        self.seen = handle.getMapState("seen", "t BIGINT", "n BIGINT")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        del timerValues
        for row in rows:
            if row.temperature is not None:
                self.top.appendValue((row.temperature,))
                old = self.seen.getValue((row.temperature,))
                self.seen.updateValue((row.temperature,), ((old[0] if old else 0) + 1,))
        hottest = sorted((t for (t,) in self.top.get()), reverse=True)[:3]
        self.top.put([(t,) for t in hottest])
        most = sum(n for _, (n,) in self.seen.iterator())
        yield Row(id=key[0], count=most, violations=sum(hottest))

    def close(self) -> None:
        pass


class DownTime(StatefulProcessor):
    """Of Spark's documentation: says after five seconds, and then every ten, how long it is down.

    What readings have as temperature is their time in ms.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle, self.last_seen = handle, handle.getValueState("last_seen", "at BIGINT")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        now, latest = timerValues.getCurrentProcessingTimeInMs(), max(r.temperature for r in rows)
        known = self.last_seen.get()
        if known is None or known[0] < latest:
            for timer in self.handle.listTimers():
                self.handle.deleteTimer(timer)
            self.last_seen.update((latest,))
        self.handle.registerTimer(now + FIVE_SECONDS)
        yield Row(id=key[0], said=f"seen, {len(list(self.handle.listTimers()))} to come")

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        now: Any = timerValues.getCurrentProcessingTimeInMs()
        (last,) = self.last_seen.get() or (0,)
        self.handle.registerTimer(now + TEN_SECONDS)
        late = now - expiredTimerInfo.getExpiryTimeInMs()
        yield Row(id=key[0], said=f"down for {now - last}, told {late} late")

    def close(self) -> None:
        pass


class Fading(StatefulProcessor):
    """Keeps the same in states that live for a millisecond, and in others that live for a day."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.kept = {
            name: (
                handle.getValueState(f"{name}Value", "t BIGINT", ttl),
                handle.getListState(f"{name}List", "t BIGINT", ttl),
                handle.getMapState(f"{name}Map", "t BIGINT", "n BIGINT", ttl),
            )
            for name, ttl in (("short", 1), ("long", DAY))
        }

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        del timerValues
        before = self.said()
        for row in rows:
            for value, listed, mapped in self.kept.values():
                value.update((row.temperature,))
                listed.appendValue((row.temperature,))
                old = mapped.getValue((row.temperature,))
                mapped.updateValue((row.temperature,), ((old[0] if old else 0) + 1,))
        yield Row(id=key[0], said=f"{before} then {self.said()}")

    def said(self) -> str:
        """What there is, in words that do not depend on the types of rows."""
        found = []
        for name, (value, listed, mapped) in self.kept.items():
            held = value.get()
            pairs = sorted((t, n) for (t,), (n,) in mapped.iterator())
            there = [state.exists() for state in (value, listed, mapped)]
            elements = [t for (t,) in listed.get()]
            found.append(f"{name} {None if held is None else held[0]} {elements} {pairs} {there}")
        return ", ".join(found)

    def close(self) -> None:
        pass
