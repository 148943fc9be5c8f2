"""A batch that other code began, finished all the same: a person takes the risk."""

from __future__ import annotations

import pytest

from state_lib.changelog.claims import newest_claim
from state_lib.exits import EXIT_REFUSED
from state_lib.kafka import Kafka
from tests.chaos.check import check
from tests.chaos.cluster import Cluster
from tests.chaos.conftest import Events

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]
SAME = "concat(k, '')"
"""Another text, and the same keys: here nothing is lost or counted twice."""


def test_code_that_is_accepted_finishes_a_batch(cluster: Cluster, events: Events, app: str) -> None:
    events.more(3000)
    driver = cluster.driver(app, events.topic)
    driver.wait_event("batch")
    cluster.arm("exchange.after_commit=kill-jvm")
    events.more(3000)
    cluster.wait_fired("exchange.after_commit")
    assert driver.wait(60) != 0
    claim = newest_claim(Kafka.of(cluster.settings), app)
    assert claim is not None
    theirs = claim.by["code"]
    wrong = cluster.driver(app, events.topic, key=SAME, accept_new_code="of-another-job")
    assert wrong.wait(90) == EXIT_REFUSED
    assert f"HOLDFAST_ACCEPT_NEW_CODE={theirs}" in wrong.log.read_text()
    edited = cluster.driver(app, events.topic, key=SAME, accept_new_code=theirs)
    edited.wait_event("streaming")
    assert edited.events("finishing a batch of other code") == 2, "before the claim and after it"
    check(cluster.settings, app, events.topic)
    assert edited.stop() == 0
