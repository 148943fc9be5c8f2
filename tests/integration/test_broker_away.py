"""A broker that is killed, or stands still for longer than its session; no other test shares it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest

from state_lib.changelog.writer import OutcomeUnknown
from state_lib.errors import HoldfastError, Unavailable
from state_lib.kafka import Kafka, ends
from state_lib.stack.broker import LocalBroker
from tests.support.brokers import running_broker
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
    writer = log.writer(timeout_s=2.0)
    log.put(writer, "before")
    outcome: list[object] = []

    def commit() -> None:
        try:
            outcome.append(log.put(writer, "stalled"))
        except HoldfastError as error:
            outcome.append(error)

    thread = threading.Thread(target=commit)
    with broker.paused():
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
        admin = log.kafka.admin()
        while not over.is_set():
            with contextlib.suppress(Unavailable):
                answers.append(ends(admin, [at])[at])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(2):
        answers.clear()
        until(lambda: len(answers) > 100, 30)
        broker.kill()
        broker.start()
        seen.update(answers)
    over.set()
    for thread in threads:
        thread.join(60 * SLOWNESS)
    assert seen | set(answers) == {want}
