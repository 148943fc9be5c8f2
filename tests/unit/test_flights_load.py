"""The flights as they are published: order, times, keys. No Kafka."""

from itertools import islice

import orjson
import pandas as pd
import pytest

from jobs import flights_load


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return flights_load.flights()


def test_every_flight_is_there_once(table: pd.DataFrame) -> None:
    assert len(table) == 336_776
    names = ["time_hour", "carrier", "flight", "origin", "sched_dep_time"]
    assert not table.duplicated(names).any()
    assert table["tailnum"].isna().sum() == 2512
    assert table["dep_time"].isna().sum() == 8255


def test_they_are_in_the_order_in_which_they_left(table: pd.DataFrame) -> None:
    assert table["left"].is_monotonic_increasing
    delay = table["dep_delay"].fillna(0).astype("int64") * 60_000
    assert (table["left"] == table["scheduled"] + delay).all()
    assert not table.duplicated(["left", "scheduled", "carrier", "flight", "origin"]).any()


def test_scheduled_is_new_yorks_clock_in_utc(table: pd.DataFrame) -> None:
    columns = ["year", "month", "day", "hour", "minute"]
    local = pd.to_datetime(table[columns]).dt.tz_localize("America/New_York")
    utc = local.dt.tz_convert("UTC").astype("datetime64[ms, UTC]").astype("int64")
    assert (table["scheduled"] == utc).all()


def test_records(table: pd.DataFrame) -> None:
    first = next(flights_load.records(table))
    body = orjson.loads(first.value)
    assert first.key == body["origin"].encode()
    assert first.timestamp == body["scheduled"]
    assert set(body) >= {"origin", "dest", "tailnum", "distance", "dep_delay", "departed"}
    cancelled = table[table["dep_time"].isna()].head(1)
    body = orjson.loads(next(flights_load.records(cancelled)).value)
    assert (body["departed"], body["dep_delay"]) == (False, None)
    again = list(islice(flights_load.records(flights_load.flights()), 50))
    assert again == list(islice(flights_load.records(table), 50))
