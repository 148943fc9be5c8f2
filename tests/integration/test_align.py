"""Align: what it refuses to repeat, before it reads a record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from state_lib.changelog.progress import ProgressLog, Recorded
from state_lib.changelog.topics import progress_topic
from state_lib.client.flight import FlightHostClient
from state_lib.config import Settings
from state_lib.declaration import Declaration
from state_lib.driver.standing import Standing
from state_lib.errors import CodeChanged, ConfigurationError
from state_lib.executor.exchange import exchange
from state_lib.executor.plan import BatchPlan, ExchangePlan
from state_lib.kafka import Kafka
from state_lib.protocol.addresses import HostAddress
from state_lib.protocol.marker import NO_TIME, now_ms
from state_lib.protocol.positions import Positions
from state_lib.spark.align import align
from state_lib.spark.batches import Batches
from tests.support.apps import App
from tests.support.declared import counting
from tests.support.hosts import address, claim, publish, served
from tests.support.lost import made_again

TASKS = range(2)
THEIRS = "code-of-before"


class Reached(Exception):
    """Align began to read what it repeats."""


@dataclass
class HalfDone:
    """A batch of other code that task 0 has committed and task 1 has not.

    ``first`` is the offset of what task 1 did last; ``asked`` is from where the log was read.
    """

    app: App
    job: Declaration
    at: HostAddress
    standing: Standing
    first: int
    asked: list[int] = field(default_factory=list)

    def align(self, accepted: str = "") -> None:
        settings = Settings.load(
            bootstrap_servers=str(self.app.kafka.properties["bootstrap.servers"]),
            hosts=f"{self.at.id}={self.at.host}:{self.at.flight_port}/{self.at.http_port}",
            exchange_timeout_s=10,
            accept_new_code=accepted,
        )
        none: Any = None
        batches = Batches(self.job, settings, self.app.kafka, none, self.standing, None)
        progress = ProgressLog(self.app.kafka, self.app.name)

        def records(since: int) -> list[Recorded]:
            self.asked.append(since)
            return progress.read(since)

        def read(from_: str, to: str) -> Any:
            raise Reached(from_, to)

        with closing(batches):
            align(batches, read, records, lambda: False)


@pytest.fixture
def half_done(kafka: Kafka, name: str, tmp_path: Path) -> Iterator[HalfDone]:
    source = f"{name}-in"
    job = counting(name, {source: "counts"}, len(TASKS))
    kafka.admin().create_topics([NewTopic(source, 1, 1)])[source].result()
    app, at = App(kafka, job.topology, tmp_path), address()
    app.create()
    epoch = publish(app)
    start, end = Positions({(source, 0): 0}), Positions({(source, 0): 10})
    begin = BatchPlan(epoch, 1, Positions(), start, NO_TIME, now_ms(), 0, {}, code=THEIRS)
    batch = replace(begin, batch_number=2, from_=start, to=end)
    progress = ProgressLog(kafka, name)
    first = progress.append({"kind": "what came before"}) + 1
    with served(app, at) as host, closing(FlightHostClient(at, None)) as client:
        markers = [claim(host, app, epoch, p) for p in TASKS]
        for plan, tasks in ((begin, TASKS), (batch, TASKS[:1])):
            recorded = replace(plan, recorded=progress.append(plan.record()))
            own = ExchangePlan(name, len(TASKS), (), recorded, (at,), None, 20)
            for task in tasks:
                markers[task] = exchange(own, task, None, client)
        yield HalfDone(app, job, at, Standing(epoch, markers, {}), first)


@pytest.mark.parametrize("accepted", ["", "of-another-job"])
def test_a_batch_of_other_code_is_not_repeated(half_done: HalfDone, accepted: str) -> None:
    """A driver may have begun it between the look before the claim and the claim."""
    with pytest.raises(CodeChanged, match=f"HOLDFAST_ACCEPT_NEW_CODE={THEIRS}"):
        half_done.align(accepted)


def test_it_is_repeated_if_a_person_takes_the_risk(half_done: HalfDone) -> None:
    with pytest.raises(Reached) as reached:
        half_done.align(THEIRS)
    source = half_done.job.topology.sources[0]
    assert reached.value.args == (f'{{"{source}":{{"0":0}}}}', f'{{"{source}":{{"0":10}}}}')


def test_the_log_is_read_from_where_the_furthest_behind_stands(half_done: HalfDone) -> None:
    """And not from its beginning: a day of batches takes long."""
    with pytest.raises(Reached):
        half_done.align(THEIRS)
    assert half_done.first > 0
    assert half_done.asked == [half_done.first]


def test_a_progress_topic_that_was_deleted_is_told(half_done: HalfDone) -> None:
    """A driver's start makes it anew, empty: what task 1 missed can be decided in one way only."""
    made_again(half_done.app, progress_topic(half_done.app.name))
    with pytest.raises(ConfigurationError, match=r"tasks \[1\] stand at .*deleted or cut short"):
        half_done.align(THEIRS)
