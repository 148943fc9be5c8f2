"""Compaction that really happens, measured: a healthy log passes, two that are stuck fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from state_lib.changelog.admin import set_topic_configs
from state_lib.changelog.lasts import last_records
from state_lib.changelog.reader import read_last
from state_lib.checks import Verdict
from state_lib.checks.compaction import compaction
from state_lib.checks.facts import Facts, Wanted
from state_lib.gathering.samples import sample_log, samples
from state_lib.gathering.topics import topics_seen
from state_lib.kafka import Kafka, ends, starts
from state_lib.protocol.marker import now_ms
from state_lib.stack.broker import LocalBroker
from tests.support.apps import App
from tests.support.brokers import running_broker
from tests.support.repeated import KEYS, MIB, VALUE, made, write
from tests.support.waiting import until

LONG = str(30 * 86_400_000)
_CONTROL, _HEADER, _KEY_AT = 0x20, 61, 5


def verdict(app: App) -> Verdict:
    now = now_ms()
    topics = topics_seen(app.kafka, app.topology)
    read = samples(app.kafka, app.topology, topics, (), now)
    facts = Facts(app.topology, now, Wanted(1, 1, 0), topics, samples=read)
    (found,) = compaction(facts)
    assert found.subject == app.topic("kv")
    return found


def test_a_log_that_is_cleaned_passes(kafka: Kafka, name: str, tmp_path: Path) -> None:
    app = made(kafka, name, tmp_path)
    write(app, 20)
    found = until(lambda: v if (v := verdict(app)).level == "ok" else None, 90, "cleaned")
    assert "1 of 1 partitions read" in found.seen
    admin, at = kafka.admin(), (app.topic("kv"), 0)
    assert ends(admin, [at])[at] > 20 * MIB // VALUE, "by offsets it is as long as ever"


def test_a_broker_whose_cleaner_is_off_fails(name: str, tmp_path: Path) -> None:
    with running_broker(tmp_path / "broker", extra={"log.cleaner.enable": "false"}) as broker:
        app = made(Kafka({"bootstrap.servers": broker.bootstrap, "log_level": 0}), name, tmp_path)
        write(app, 2)
        assert verdict(app).level == "ok", "as much may be in the last segment"
        write(app, 12)
        found = verdict(app)
        assert found.level == "fail"
        assert "were never cleaned" in found.seen
        assert "99% of what was read is dead" in found.seen
        assert "log.cleaner.enable" in found.step


@pytest.fixture
def quick_broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with running_broker(tmp_path / "broker", extra={"log.cleaner.backoff.ms": "100"}) as broker:
        yield broker


def test_an_uncleanable_partition_fails_and_no_other(
    quick_broker: LocalBroker, name: str, tmp_path: Path
) -> None:
    broker = quick_broker
    kafka = Kafka({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    broken, whole = (made(kafka, f"{name}-{n}", tmp_path, min_compaction_lag_ms=LONG) for n in "bw")
    for app in (broken, whole):
        write(app, 3)
    broker.stop()
    data = Path(broker.config.properties()["log.dirs"])
    spoil_a_marker(data / f"{broken.topic('kv')}-0" / f"{0:020}.log")
    broker.start()
    for app in (broken, whole):
        set_topic_configs(kafka.admin(), app.topic("kv"), {"min.compaction.lag.ms": "0"})
        write(app, 12)
    until(lambda: "as uncleanable" in broker.log.read_text(errors="replace"), 90, "marked")
    until(lambda: verdict(whole).level == "ok", 90, "cleaned")
    found = verdict(broken)
    assert found.level == "fail", found
    assert "were never cleaned" in found.seen
    assert "uncleanable-partitions-count" in found.step


def spoil_a_marker(segment: Path) -> None:
    """Give the first transaction marker a version that brokers refuse and readers pass over."""
    raw, at = bytearray(segment.read_bytes()), 0
    while not raw[at + 22] & _CONTROL:  # attributes, the lower byte
        at += 12 + int.from_bytes(raw[at + 8 : at + 12], "big")
    key = at + _HEADER + _KEY_AT
    assert raw[key : key + 2] == b"\0\0"
    raw[key : key + 2] = b"\xff\xff"
    segment.write_bytes(raw)


def test_samples_of_a_long_log_see_repeats_over_its_whole_length(
    kafka: Kafka, name: str, tmp_path: Path
) -> None:
    app = made(kafka, name, tmp_path, min_compaction_lag_ms=LONG)
    write(app, 4)
    admin, at = kafka.admin(), (app.topic("kv"), 0)
    first, end = starts(admin, [at])[at], ends(admin, [at])[at]
    whole = sample_log(kafka, *at, first, end)
    assert whole.records == 4 * MIB // (KEYS * VALUE) * KEYS
    assert whole.records - whole.repeats == KEYS
    assert whole.first_repeat == KEYS + 1, "behind the first transaction and its marker"
    assert (whole.before_offsets, whole.before_records) == (KEYS + 1, KEYS)
    assert whole.record_bytes == pytest.approx(VALUE + 2, abs=1)
    places = sample_log(kafka, *at, first, end, 400)
    assert places.offsets == 400
    assert 300 < places.records <= 400
    assert 0 < places.first_repeat < end
    assert last_records(kafka, at[0], [0])[0].offset() == read_last(kafka, *at).offset()  # type: ignore[union-attr]
