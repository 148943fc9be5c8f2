"""A broker that is killed, or stands still for longer than its session; no other test shares it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic

from state_lib.changelog.writer import OutcomeUnknown
from state_lib.drivers.identity import Identity
from state_lib.drivers.members import living_drivers
from state_lib.drivers.presence import Presence
from state_lib.errors import HoldfastError, Unavailable
from state_lib.kafka import Kafka, Partition, ends
from state_lib.kafka_admin import Admin
from state_lib.stack.broker import LocalBroker
from tests.support.brokers import paused, running_broker
from tests.support.topic import Log
from tests.support.waiting import SLOWNESS, until


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with running_broker(tmp_path_factory.mktemp("stalled")) as running:
        yield running


@pytest.fixture(scope="module")
def kafka(broker: LocalBroker) -> Kafka:
    return Kafka({"bootstrap.servers": broker.bootstrap, "log_level": 0})


@pytest.mark.parametrize("pause_s", [1.0, 5.0])  # the second is longer than a broker's session
def test_a_broker_that_stalls_is_never_lied_about(
    log: Log, broker: LocalBroker, pause_s: float
) -> None:
    log.writer()  # patiently: a coordinator of transactions that was just started loads first
    writer = log.writer(timeout_s=2.0)
    log.put(writer, "before")
    outcome: list[object] = []

    def commit() -> None:
        try:
            outcome.append(log.put(writer, "stalled"))
        except HoldfastError as error:
            outcome.append(error)

    thread = threading.Thread(target=commit)
    with paused(broker):
        thread.start()
        thread.join(pause_s)
    thread.join(30 * SLOWNESS)
    assert len(outcome) == 1
    log.put(log.writer(), "after")  # what was in doubt is decided now
    keys = log.read_keys()
    stands = keys == ["before", "stalled", "after"]
    assert stands or keys == ["before", "after"]
    if isinstance(outcome[0], bytes):
        assert stands
    else:
        assert isinstance(outcome[0], OutcomeUnknown | Unavailable)
        assert not (stands and isinstance(outcome[0], Unavailable)), "aborted must mean aborted"


def test_no_end_is_made_up_while_a_broker_restarts(log: Log, broker: LocalBroker) -> None:
    """librdkafka answers -1001 and no error then: a restore that believed it would read nothing."""
    writer = log.writer()
    for key in "abc":
        log.put(writer, key)
    at = (log.topic, 0)
    want = ends(log.kafka.admin(), [at])[at]
    over = threading.Event()
    answers: list[int] = []
    seen: set[int] = set()

    def ask() -> None:
        while not over.is_set():
            with contextlib.suppress(Unavailable):
                answers.append(ends(log.kafka.admin(), [at])[at])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(2):
        answers.clear()
        until(lambda: len(answers) > 100, 30)
        broker.kill()
        broker.start()
        seen.update(answers)
    answers.clear()
    until(lambda: bool(answers), 60)  # not refused for ever, with FENCED_LEADER_EPOCH
    over.set()
    for thread in threads:
        thread.join(60 * SLOWNESS)
    assert seen | set(answers) == {want}


LOOKS = """
import sys, threading, time
from state_lib.drivers.members import living_drivers
from state_lib.errors import Unavailable
from state_lib.kafka import Kafka
kafka = Kafka({"bootstrap.servers": sys.argv[1], "log_level": 0})
answers = []
def look():
    while True:
        try:
            answers.append(living_drivers(kafka, "app", 4))
        except Unavailable:
            pass
for _ in range(4):
    threading.Thread(target=look, daemon=True).start()
for _ in sys.stdin:
    enough = len(answers) + 50
    while len(answers) < enough:
        time.sleep(0.05)
    print(set(answers), flush=True)
"""


def test_who_looks_at_drivers_survives_it(broker: LocalBroker, kafka: Kafka) -> None:
    """One that describes groups is ended by an assertion of librdkafka 2.16 (its issue 4605)."""
    kafka.admin().create_topics([NewTopic("app-topology", 1, 1)])["app-topology"].result()
    presence = Presence(kafka, "app", Identity("one", "here", 1, "/log"))
    presence.join()
    until(lambda: _drivers(kafka) == ("one",), 60)
    command = [sys.executable, "-c", LOOKS, broker.bootstrap]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one:
        assert one.stdin is not None
        assert one.stdout is not None
        for _ in range(2):
            one.stdin.write("look\n")
            one.stdin.flush()
            assert "('one',)" in one.stdout.readline()
            broker.kill()
            broker.start()
        one.communicate("look\n", timeout=120 * SLOWNESS)
    assert one.returncode == 0
    until(lambda: _drivers(kafka) == ("one",), 60)
    presence.leave("stopped", "")


def _drivers(kafka: Kafka) -> tuple[str, ...]:
    try:
        return living_drivers(kafka, "app")
    except Unavailable:
        return ()


def test_a_client_that_has_forgotten_all_brokers_is_replaced(tmp_path: Path) -> None:
    """librdkafka drops a broker that was fenced, and now and then never looks for it again.

    Whether it does is a race of two of its threads; with ``none`` it never does. A broker whose
    heartbeats are twice as far apart as its session is long is fenced half of the time.
    """
    rarely = {"broker.heartbeat.interval.ms": "6000"}
    with running_broker(tmp_path / "fenced", extra=rarely) as broker:
        properties = {"bootstrap.servers": broker.bootstrap, "log_level": 0}
        kafka = Kafka({**properties, "metadata.recovery.strategy": "none"})
        at = ("kept", 0)
        until(lambda: _made(Kafka(properties), at[0]), 60)
        lost = kafka.admin()
        until(lambda: _forgets(lost, at[0]), 60)
        until(lambda: _end(kafka, at) == 0, 60)
        assert kafka.admin() is not lost


def _made(kafka: Kafka, topic: str) -> bool:
    """Make a topic of one partition, unless the broker is fenced or has it."""
    with contextlib.suppress(KafkaException):
        kafka.admin().create_topics([NewTopic(topic, 1, 1)])[topic].result()
    with contextlib.suppress(KafkaException):
        return topic in kafka.admin().list_topics(timeout=5).topics
    return False


def _forgets(admin: Admin, topic: str) -> bool:
    """Whether nobody is left to be asked: the broker runs, and is asked by others."""
    try:
        admin.list_topics(topic, timeout=4)
    except KafkaException as error:
        return bool(error.args[0].code() == KafkaError._TRANSPORT)
    return False


def _end(kafka: Kafka, at: Partition) -> int | None:
    try:
        return ends(kafka.admin(), [at])[at]
    except Unavailable:
        return None
