"""Loaders against a real broker; and the audit of real flights, with each sort of damage."""

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobs import flights_audit, flights_load, word_count_load
from state_lib.audit import AuditReport, audit
from state_lib.changelog.admin import ensure_topics
from state_lib.changelog.progress import ProgressLog
from state_lib.changelog.reader import read
from state_lib.changelog.topics import TopicPlan
from state_lib.config import Settings
from state_lib.errors import (
    ChangelogUnsafe,
    ConfigurationError,
    HoldfastError,
    NotFound,
    Unavailable,
)
from state_lib.host.server import StateHost
from state_lib.kafka import Kafka, describe, ends
from state_lib.loading import Record, publish
from state_lib.protocol.positions import Positions
from state_lib.spark.driver import Driver
from state_lib.spark.session import open_session
from state_lib.stack.ports import free_port
from tests.support.brokers import running_broker
from tests.support.waiting import deadline_in

ROOT = Path(__file__).parents[3]
FLIGHTS = 5000
LEAST_BYTES, MOST_BYTES = 147, 228_000
"""Of a flight, key and value, and of a batch: so of some 1,500."""


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    home = tmp_path_factory.mktemp("audit")
    with running_broker(home / "kafka") as broker:
        yield Settings.load(
            home=home,
            bootstrap_servers=broker.bootstrap,
            replication_factor=1,
            hosts=f"audit-1=127.0.0.1:{free_port()}/{free_port()}",
            spark_master="local[2,4]",
            log_level="WARNING",
        )


def content(settings: Settings, topic: str) -> dict[int, list[Record]]:
    kafka = Kafka.of(settings)
    places = [(topic, p) for p in range(describe(kafka.admin(), [topic])[topic].partitions)]
    return {
        p: [
            Record(m.key(), m.value() or b"", m.timestamp()[1])
            for batch in read(kafka, topic, p, 0, end)
            for m in batch
        ]
        for (_, p), end in ends(kafka.admin(), places).items()
    }


def test_a_killed_load_goes_on(settings: Settings) -> None:
    script = [sys.executable, str(ROOT / "jobs" / "flights_load.py"), "--limit", str(FLIGHTS)]
    environment = settings.as_environment() | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen([*script, "--rate", "250"], env=environment) as loader:
        deadline = deadline_in(60)
        seen = 0
        while seen < 500 and time.monotonic() < deadline:
            with contextlib.suppress(Unavailable, KeyError):  # not there, or without leaders, yet
                seen = sum(map(len, content(settings, "flights").values()))
            time.sleep(0.05)
        loader.send_signal(signal.SIGKILL)
    before = content(settings, "flights")
    assert 500 <= sum(map(len, before.values())) < FLIGHTS
    told: list[tuple[int, int]] = []
    loaded = flights_load.load(
        settings, limit=FLIGHTS, report=lambda done, total: told.append((done, total))
    )
    assert sum(loaded) == FLIGHTS
    assert loaded.found == sum(map(len, before.values()))
    assert told[-1] == (FLIGHTS, FLIGHTS)
    after = content(settings, "flights")
    expected = list(flights_load.records(flights_load.flights().head(FLIGHTS)))
    for p, records in after.items():
        assert records[: len(before[p])] == before[p]
        keys = {r.key for r in records}
        assert records == [r for r in expected if r.key in keys], "real order, each once"
    assert flights_load.load(settings, limit=FLIGHTS) == (FLIGHTS, 0)
    assert flights_load.load(settings, limit=10) == (FLIGHTS, 0), "what is beyond stays"


def test_lines_take_turns(settings: Settings) -> None:
    assert word_count_load.load(settings, limit=10) == (0, 10)
    assert word_count_load.load(settings) == (10, word_count_load.LINES - 10)
    assert len(content(settings, "lines")[0]) == word_count_load.LINES // 4


def test_a_topic_with_other_records_is_refused(settings: Settings) -> None:
    records = [Record(b"k", b"%d" % i, i) for i in range(1, 7)]
    publish(settings, "other", records, total=6)
    with pytest.raises(ConfigurationError, match=r"holds other records.*offset 1"):
        publish(settings, "other", [records[0], Record(b"k", b"x", 2)], total=2)
    with pytest.raises(ConfigurationError, match="something else writes"):
        publish(settings, "other", records[:3], total=3)


def test_a_topic_that_deletes_is_refused(settings: Settings) -> None:
    plan = TopicPlan("short", 2, {"cleanup.policy": "delete", "retention.ms": "60000"})
    ensure_topics(Kafka.of(settings).admin(), [plan], 1, 1)
    with pytest.raises(ChangelogUnsafe, match=r"retention\.ms=60000"):
        publish(settings, "short", [], total=0)


def test_an_application_that_never_ran(settings: Settings) -> None:
    with pytest.raises(NotFound, match="never run"):
        audit("nobody", settings, flights_audit.recompute)


def _positions(host: StateHost, task: int) -> Positions:
    try:
        return host.tasks.task("flights", task).marker.positions
    except HoldfastError:
        return Positions()


@pytest.fixture(scope="module")
def flown(settings: Settings) -> Iterator[Settings]:
    """The flights, loaded in two parts, run to the end in batches that grow as far as they may."""
    flights_load.load(settings, limit=FLIGHTS // 2)
    host = StateHost(settings, "audit-1")
    host.start()
    sizes = {"first_offsets_per_trigger": 300, "max_bytes_per_trigger": MOST_BYTES}
    sizes["batch_target_s"] = 300
    from jobs.flights import app  # noqa: PLC0415 - it opens Spark

    driver = Driver(app, settings.model_copy(update=sizes))
    thread = threading.Thread(target=driver.run, daemon=True)
    thread.start()
    try:
        flights_load.load(settings, limit=FLIGHTS)
        end = ends(Kafka.of(settings).admin(), [("flights", p) for p in range(4)])
        deadline = deadline_in(150)
        while any(_positions(host, task) != end for task in range(4)):
            assert time.monotonic() < deadline, "the stream did not reach the end"
            assert thread.is_alive()
            time.sleep(0.3)
        driver.stop()
        thread.join(60)
        yield settings
    finally:
        driver.stop()
        thread.join(60)
        app._opened.stop()
        host.stop()


@pytest.fixture(scope="module")
def spark(flown: Settings) -> Iterator[SparkSession]:
    session = open_session("test-audit", flown)
    session.conf.set("spark.sql.shuffle.partitions", "4")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def truth(flown: Settings, spark: SparkSession) -> dict[str, Any]:
    """What the real recompute gives; the audit that asked for it found no difference."""
    kept: dict[str, Any] = {}

    def recompute(*given: Any) -> dict[str, Any]:
        kept.update(flights_audit.recompute(*given))
        return kept

    report = audit("flights", flown, recompute, spark=spark)
    assert report.clean, report.to_json()
    assert report.records == FLIGHTS
    assert {c.name for c in report.comparisons if c.digest_expected} == set(kept["stores"])
    outputs = [c for c in report.comparisons if c.kind == "output"]
    assert [c.actual > 200 for c in outputs] == [True, True]
    return kept


def test_batches_grow_while_the_stream_catches_up(
    flown: Settings, truth: Mapping[str, Any]
) -> None:
    records = [r for r in ProgressLog(Kafka.of(flown), "flights").read(0) if r.to != r.from_]
    sizes = [sum(r.to.values()) - sum(r.from_.values()) for r in records]
    assert sizes[0] <= 300, sizes
    assert 300 < sizes[1] <= 1200, sizes
    assert 1200 < max(sizes) <= MOST_BYTES // LEAST_BYTES, "4,800 without that bound"
    assert sum(sizes) == FLIGHTS
    assert truth, "and the audit of them is clean"


def damaged(
    settings: Settings, spark: SparkSession, truth: Mapping[str, Any], **changes: Any
) -> dict[str, tuple[int, int, int, int]]:
    """Numbers of what differs when the expected side is changed."""

    def recompute(_spark: Any, _rows: Any, _batches: Sequence[Any]) -> Mapping[str, Any]:
        return {**truth, **changes}

    report: AuditReport = audit("flights", settings, recompute, spark=spark)
    return {
        f"{c.kind} {c.name}".strip(): (c.missing, c.unexpected, c.different, c.doubled)
        for c in report.comparisons
        if not c.clean
    }


def test_damage_is_found(flown: Settings, spark: SparkSession, truth: dict[str, Any]) -> None:
    hours, aircraft = (truth["stores"][n] for n in ("departures_by_hour", "aircraft"))
    extra = {**hours[0], "key": "XYZ"}
    missing = {"departures_by_hour": [*hours, extra], "aircraft": aircraft}
    assert damaged(flown, spark, truth, stores=missing) == {
        "store departures_by_hour": (1, 0, 0, 0),
        "output departures-by-hour": (1, 0, 0, 0),
    }
    unexpected = {"departures_by_hour": hours, "aircraft": aircraft[1:]}
    assert damaged(flown, spark, truth, stores=unexpected) == {
        "store aircraft": (0, 1, 0, 0),
        "output aircraft-seen": (0, 1, 0, 0),
    }
    wrong = {"departures_by_hour": hours, "aircraft": [{**aircraft[0], "miles": -1}, *aircraft[1:]]}
    assert damaged(flown, spark, truth, stores=wrong) == {
        "store aircraft": (0, 0, 1, 0),
        "output aircraft-seen": (0, 0, 1, 0),
    }
    late = truth["dropped"] | {"late:departures_by_hour": 1}
    assert damaged(flown, spark, truth, dropped=late) == {"dropped": (1, 0, 0, 0)}
    letters = [("flights", 0, 1, "undecodable")]
    assert damaged(flown, spark, truth, dead_letters=letters) == {"dead letters": (1, 0, 0, 0)}
    digests = truth["digests"] | {"aircraft": "0" * 32 + "/1"}
    assert damaged(flown, spark, truth, digests=digests) == {"store aircraft": (0, 0, 0, 0)}


def test_a_doubled_output_is_found(
    flown: Settings, spark: SparkSession, truth: dict[str, Any]
) -> None:
    kafka = Kafka.of(flown)
    end = ends(kafka.admin(), [("aircraft-seen", 0)])["aircraft-seen", 0]
    again = next(read(kafka, "aircraft-seen", 0, 0, end))[0]
    producer = kafka.producer()
    first = again.value() or b""
    producer.produce("aircraft-seen", first, again.key(), 0, timestamp=again.timestamp()[1])
    producer.flush(10)
    found = damaged(flown, spark, truth)
    assert set(found) == {"output aircraft-seen"}
    assert found["output aircraft-seen"][3] == 1
