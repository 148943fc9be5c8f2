"""What users write, word for word: a file is run as it stands, with what it leaves out."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic
from pyspark.sql import SparkSession

from state_lib import TopologyTestDriver
from state_lib.changelog.admin import _await
from state_lib.changelog.topics import TopicPlan
from state_lib.config import Settings
from state_lib.errors import HoldfastError
from state_lib.kafka import Kafka
from state_lib.spark import handle
from state_lib.stack.broker import LocalBroker
from state_lib.stack.ports import free_port
from tests.support.apps import App
from tests.support.documents import ROOT
from tests.support.environment import set_environment
from tests.support.hosts import address, served
from tests.support.waiting import until

FILE = ROOT / "tests" / "support" / "what_users_write.txt"
DECLARED, RUN = FILE.read_text("utf-8").split("app = ")
HOUR = 3_600_000
T0 = 1_700_000_000_000 // HOUR * HOUR
FLIGHT = """
    origin STRING NOT NULL, dest STRING NOT NULL, tailnum STRING, distance BIGINT NOT NULL,
    dep_delay BIGINT, departed BOOLEAN NOT NULL, scheduled BIGINT NOT NULL
"""
LEFT_OUT = {
    "__name__": "users",
    "FLIGHT": FLIGHT,
    "BEAT": "device STRING, at BIGINT",
    "HOUR": HOUR,
    "T0": T0,
}
PARTITIONS = 4


def written(text: str = DECLARED, **more: Any) -> dict[str, Any]:
    """The names that a text declares."""
    there = LEFT_OUT | more
    exec(compile(text, FILE.name, "exec"), there)  # noqa: S102 - it is ours
    return there


def flights() -> Iterator[dict[str, Any]]:
    """One flies, one is cancelled, one is another aircraft's in the next hour."""
    one = {
        "origin": "JFK", "dest": "LAX", "tailnum": "N1", "distance": 100, "dep_delay": 7,
        "departed": True, "scheduled": T0,
    }  # fmt: skip
    yield one
    yield one | {"dest": "SFO", "dep_delay": None, "departed": False, "scheduled": T0 + 60_000}
    yield one | {"tailnum": "N2", "distance": 5, "scheduled": T0 + HOUR}


AIRCRAFT: dict[str, dict[str, Any]] = {
    "N1": {"flights": 2, "miles": 200, "last": {"dest": "SFO", "scheduled": T0 + 60_000}},
    "N2": {"flights": 1, "miles": 5, "last": {"dest": "LAX", "scheduled": T0 + HOUR}},
}


def test_word_count(spark: SparkSession) -> None:
    with TopologyTestDriver(written()["word_count"], spark) as driver:
        lines, out = driver.createInputTopic("lines"), driver.createOutputTopic("word-counts")
        lines.pipeValueList(["To be, or not to be", "", b"\xff"])
        counts = {"to": 2, "be": 2, "or": 1, "not": 1}
        assert out.readKeyValuesToMap() == {w: {"word": w, "count": n} for w, n in counts.items()}
        lines.pipeInput("be")
        assert out.readValuesToList() == [{"word": "be", "count": 3}]
        assert driver.getKeyValueStore("counts").all() == counts | {"be": 3}
        assert driver.droppedRecords() == {"undecodable": 1}
        driver.assertSurvivesRepeats()
        driver.assertSameHoweverCut()


def test_flights(spark: SparkSession) -> None:
    with TopologyTestDriver(
        written()["flights"], spark, partitions=2, now=T0 + 24 * HOUR
    ) as driver:
        source = driver.createInputTopic("flights")
        for flight in flights():
            source.pipeInput(flight, timestamp=flight["scheduled"])
        hours = driver.getWindowStore("departures_by_hour").all()
        assert hours == {
            ("JFK", T0): {
                "departures": 1, "cancellations": 1, "delay_sum": 7, "delay_max": 7,
            },
            ("JFK", T0 + HOUR): {
                "departures": 1, "cancellations": 0, "delay_sum": 7, "delay_max": 7,
            },
        }  # fmt: skip
        by_hour = driver.createOutputTopic("departures-by-hour").readKeyValuesToMap()
        assert by_hour == {
            (origin, start): {
                "origin": origin, "window_start": start, "window_end": start + HOUR, **fields,
            }
            for (origin, start), fields in hours.items()
        }  # fmt: skip
        assert driver.getKeyValueStore("aircraft").all() == AIRCRAFT
        seen = driver.createOutputTopic("aircraft-seen").readKeyValuesToMap()
        assert seen == {tail: {"tailnum": tail, **fields} for tail, fields in AIRCRAFT.items()}
        driver.assertSurvivesRepeats()
        driver.assertSameHoweverCut()


def test_silence(spark: SparkSession) -> None:
    written()["test_an_hour_without_a_beat_is_silence"](spark)


def test_it_starts_and_its_store_is_a_dataframe(
    spark: SparkSession,
    broker: LocalBroker,
    kafka: Kafka,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With names of its own, and told where the hosts are: the JVM has other variables."""
    declare, start, read = RUN.splitlines()
    at, source = address(), f"{name}-flights"
    config = {"retention.ms": "-1"}
    kafka.admin().create_topics([NewTopic(source, PARTITIONS, 1, config=config)])[source].result()
    _await(kafka.admin(), [TopicPlan(source, PARTITIONS)])
    settings = Settings.load(
        home=tmp_path / "home",
        bootstrap_servers=broker.bootstrap,
        replication_factor=1,
        hosts=str(at),
        exchange_timeout_s=120,
        spark_ui_port=free_port(),
    )
    set_environment(monkeypatch, settings)
    # It would be that of all tests after these.
    monkeypatch.setattr(handle, "configure_logging", lambda *_: None)

    def own(text: str) -> str:
        for topic in ("flights", "departures-by-hour", "aircraft-seen"):
            text = text.replace(f'"{topic}"', f'"{name}-{topic}"')
        return text

    there = written(own(DECLARED), spark=spark)
    exec(own(f"app = {declare}"), there)  # noqa: S102 - as above
    app = App(kafka, there["app"].topology, tmp_path / "host")
    app.create()
    with served(app, at) as host:

        def kept() -> int:
            found = 0
            if (error := there["query"].exception()) is not None:
                raise error
            with contextlib.suppress(HoldfastError):  # it is not open yet
                for p in range(PARTITIONS):
                    found += sum(1 for _ in host.task(app.name, p).scan("aircraft")[1])
            return found

        exec(start, there)  # noqa: S102 - as above
        try:
            producer = kafka.producer()
            for number, flight in enumerate(flights()):
                body, partition = json.dumps(flight).encode(), number % PARTITIONS
                producer.produce(source, body, None, partition, timestamp=flight["scheduled"])
            assert producer.flush(10) == 0
            until(lambda: kept() == len(AIRCRAFT), 120, "kept")
            hosts = f'.option("hosts", "{at}").load()'
            frame = eval(own(read).replace(".load()", hosts), there)  # noqa: S307 - as above
            rows = frame.selectExpr("key", "flights", "miles", "last.dest", "last.scheduled")
            assert sorted(map(tuple, rows.collect())) == [
                (tail, one["flights"], one["miles"], *one["last"].values())
                for tail, one in AIRCRAFT.items()
            ]
        finally:
            there["query"].stop()
