"""Questions to Kafka that must survive what brokers do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.cimpl import NewTopic

from state_lib.errors import ConfigurationError
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


FREED = """
import sys, time
from confluent_kafka import KafkaException
from state_lib.kafka import Kafka
admin = Kafka({"bootstrap.servers": sys.argv[1], "log_level": 0}).admin()
def ask():
    try:
        return admin.describe_consumer_groups(["nobody"], request_timeout=2)["nobody"].result()
    except KafkaException as error:
        return error.args[0].name()
deadline = time.monotonic() + 60
while isinstance(ask(), str) and time.monotonic() < deadline:
    time.sleep(0.2)  # a new broker makes its topic of groups
for line in sys.stdin:
    print(ask() if line == "ask\\n" else "", flush=True)
del admin
print("freed", flush=True)
"""


def test_a_client_that_lost_its_coordinator_holds_nobody_up(tmp_path: Path) -> None:
    """Freed in the foreground, it waits for ever (librdkafka 2.16)."""
    with LocalBroker(tmp_path / "broker") as broker:
        command = [sys.executable, "-c", FREED, broker.bootstrap]
        client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        def said(line: str) -> str:
            assert client.stdin is not None
            assert client.stdout is not None
            client.stdin.write(f"{line}\n")
            client.stdin.flush()
            return client.stdout.readline().rstrip()

        assert said("hello") == ""
        broker.kill()
        until(lambda: said("ask") == "_TIMED_OUT", 120)  # at first it may name what it lost
        broker.start()
        out, _ = client.communicate("ask\nask\n", timeout=120 * SLOWNESS)
        assert out.endswith("freed\n")
        assert client.returncode == 0
