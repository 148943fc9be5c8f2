"""Questions to Kafka that must survive what brokers do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.cimpl import NewTopic

from state_lib.drivers.identity import Identity
from state_lib.drivers.members import living_drivers
from state_lib.drivers.presence import Presence
from state_lib.errors import ConfigurationError, Unavailable
from state_lib.kafka import Kafka, ends
from state_lib.spark.claims import check_no_collision, write_claim
from state_lib.specs import StoreSpec, Topology
from state_lib.stack.broker import LocalBroker
from tests.support.apps import app_of
from tests.support.waiting import SLOWNESS, until


def test_offsets_are_told_after_a_broker_was_killed(tmp_path: Path) -> None:
    """librdkafka alone is refused for ever: FENCED_LEADER_EPOCH."""
    with LocalBroker(tmp_path / "broker") as broker:
        kafka = Kafka({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        partitions = [("t", p) for p in range(3)]
        kafka.admin().create_topics([NewTopic("t", 3, 1)])["t"].result()
        producer = kafka.producer()
        for _, p in partitions:
            producer.produce("t", b"x", partition=p)
        producer.flush()
        assert ends(kafka.admin(), partitions) == dict.fromkeys(partitions, 1)
        broker.kill()
        broker.start()
        assert ends(kafka.admin(), partitions) == dict.fromkeys(partitions, 1)


def test_applications_that_would_share_a_changelog_are_refused(
    kafka: Kafka, name: str, tmp_path: Path
) -> None:
    first = app_of(kafka, name, tmp_path, [StoreSpec("b-c")], [])
    first.create()
    write_claim(kafka, first.topology)
    check_no_collision(kafka, first.topology)
    check_no_collision(kafka, Topology(f"{name}-b", 1, (StoreSpec("other"),)))
    with pytest.raises(ConfigurationError, match=f"{name}-b-c-changelog.*{name!r}"):
        check_no_collision(kafka, Topology(f"{name}-b", 1, (StoreSpec("c"),)))


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


def test_who_looks_at_drivers_survives_a_broker(tmp_path: Path) -> None:
    """One that describes groups is ended by an assertion of librdkafka 2.16 (its issue 4605)."""
    with LocalBroker(tmp_path / "broker") as broker:
        kafka = Kafka({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        kafka.admin().create_topics([NewTopic("app-topology", 1, 1)])["app-topology"].result()
        presence = Presence(kafka, "app", Identity("one", "here", 1, "/log"))
        presence.join()
        until(lambda: _drivers(kafka) == ("one",), 60)
        command = [sys.executable, "-c", LOOKS, broker.bootstrap]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as client:
            assert client.stdin is not None
            assert client.stdout is not None
            for _ in range(2):
                client.stdin.write("look\n")
                client.stdin.flush()
                assert "('one',)" in client.stdout.readline()
                broker.kill()
                broker.start()
            client.communicate("look\n", timeout=120 * SLOWNESS)
        assert client.returncode == 0
        until(lambda: _drivers(kafka) == ("one",), 60)
        presence.leave("stopped", "")


def _drivers(kafka: Kafka) -> tuple[str, ...]:
    try:
        return living_drivers(kafka, "app")
    except Unavailable:
        return ()
