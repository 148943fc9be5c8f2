"""What a batch does without is decided once, and not before it was waited for. No Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from state_lib.config import Settings
from state_lib.errors import (
    ConfigurationError,
    RegistryAway,
    RegistryRefused,
    Unavailable,
    UnknownSchemas,
)
from state_lib.executor.avro.registry import RegistrySchemas, Schemas
from state_lib.executor.plan import BatchPlan
from state_lib.protocol.marker import Marker
from state_lib.protocol.positions import Positions
from state_lib.settings.registry import Registry
from state_lib.spark.deciding import Deciding
from tests.support.avro_schemas import Known
from tests.support.registry import StandIn, record
from tests.support.small_http import serving
from tests.support.waiting import until

PLAN = BatchPlan(1, 5, Positions(), Positions(), 0, 0, 0, {})
SCHEMA, NEWER = record("R", a="int"), record("R", a="int", b="int")


class Driver:
    """Batches whose records name some ids, as executors would find them."""

    def __init__(self, schemas: Schemas, *, taken: int = 4, **settings: Any) -> None:
        source = SimpleNamespace(topic="flights", format="avro")
        app: Any = SimpleNamespace(id="app", verbs=[SimpleNamespace(source=source)])
        combiner: Any = SimpleNamespace(schemas=schemas)
        given = {"schema_registry_wait_s": 1.0, "exchange_timeout_s": 5.0, **settings}
        self.deciding = Deciding(app, combiner, Settings.load(**given))
        self.standing: Any = SimpleNamespace(markers=[Marker(batch_number=taken)])
        self.schemas, self.recorded, self.runs = schemas, list[tuple[int, ...]](), 0

    def batch(self, *ids: int, stopped: bool = False) -> None:
        """``recorded``: what it does without, each time that it is put on record."""

        def put(plan: BatchPlan) -> BatchPlan:
            self.recorded.append(plan.unknown)
            return replace(plan, recorded=len(self.recorded))

        def run(plan: BatchPlan) -> None:
            self.runs += 1
            assert plan.recorded == len(self.recorded)
            asked = [n for n in ids if n not in plan.unknown]
            left = [n for n in asked if self.schemas.of(n) is None]
            if left:
                raise UnknownSchemas("it does not know them", url=self.schemas.url, ids=left)

        self.recorded, self.runs = [], 0
        self.deciding.run(PLAN, self.standing, put, run, lambda: stopped)


@pytest.fixture
def registry() -> Iterator[StandIn]:
    with serving(StandIn()) as server:
        server.register("flights-value", SCHEMA)
        yield server


@pytest.fixture
def driver(registry: StandIn) -> Driver:
    return Driver(RegistrySchemas(Registry(registry.url)))


def later(call: Any, *given: Any) -> threading.Timer:
    timer = threading.Timer(0.7, call, given)
    timer.start()
    return timer


def test_a_schema_that_a_replica_has_not_yet_read_is_waited_for(
    registry: StandIn,
) -> None:
    driver = Driver(RegistrySchemas(Registry(registry.url)), schema_registry_wait_s=30.0)
    timer = later(registry.register, "flights-value", NEWER)
    driver.batch(1, 2)
    timer.join()
    assert driver.recorded == [()], "no record is a dead letter"
    assert driver.runs == 2


def test_what_stays_unknown_is_recorded_and_no_batch_after_it_fails_first(
    registry: StandIn, driver: Driver
) -> None:
    driver.batch(1, 2)
    assert (driver.recorded, driver.runs) == ([(), (2,)], 2)
    driver.batch(1, 2)
    assert (driver.recorded, driver.runs) == ([(2,)], 1)
    registry.away = True
    with pytest.raises(RegistryAway):
        driver.batch(2)
    assert driver.recorded == [()], "that it is away does not make it unknown"
    registry.away = False
    registry.register("flights-value", NEWER)
    driver.batch(1, 2)
    assert (driver.recorded, driver.runs) == ([()], 1)


def test_a_registry_that_goes_away_meanwhile_has_not_said_no(
    registry: StandIn,
) -> None:
    driver = Driver(RegistrySchemas(Registry(registry.url)), exchange_timeout_s=60.0)
    driver.batch(1)

    def leave() -> None:
        until(lambda: registry.asked.count("schemas/ids/2") > 1, 60, "asked again")
        registry.instead = (401, {"error_code": 401, "message": "who?"})
        time.sleep(1.5)  # for longer than what is unknown is waited for
        registry.register("flights-value", NEWER)
        registry.instead = None

    gone = threading.Thread(target=leave)
    gone.start()
    driver.batch(1, 2)
    gone.join()
    assert driver.recorded == [()]


@pytest.mark.parametrize("knows", [True, False])
def test_one_that_knows_nothing_is_another_registry(knows: bool) -> None:
    with serving(StandIn()) as empty:
        if knows:
            empty.register("named-otherwise", SCHEMA)
        driver = Driver(RegistrySchemas(Registry(empty.url)))
        if knows:
            driver.batch(7)
            assert driver.recorded == [(), (7,)]
            return
        with pytest.raises(RegistryRefused, match="it knows no schema at all"):
            driver.batch(7)
        assert driver.recorded == [()]


def test_a_stream_may_be_told_to_stop_for_them(registry: StandIn) -> None:
    schemas = RegistrySchemas(Registry(registry.url))
    driver = Driver(
        schemas,
        schema_registry_url=registry.url,
        schema_registry_unknown="stop",
    )
    with pytest.raises(UnknownSchemas, match="schema_registry_unknown"):
        driver.batch(2)
    assert driver.recorded == [()]


def test_a_stop_does_not_wait(driver: Driver) -> None:
    with pytest.raises(Unavailable, match="a stop does not wait"):
        driver.batch(2, stopped=True)
    assert driver.recorded == [()]


@pytest.mark.parametrize("ids", [range(2, 1503)])
def test_there_is_a_bound(ids: Sequence[int]) -> None:
    driver = Driver(Known({1: ("{}",)}), schema_registry_wait_s=0.1)
    with pytest.raises(ConfigurationError, match="records of flights name more than 1000 schemas"):
        driver.batch(*ids)
    assert driver.recorded == [()]
    driver.batch(*ids[:900])
    before = len(driver.schemas.asked) if isinstance(driver.schemas, Known) else 0
    driver.batch(1)
    assert isinstance(driver.schemas, Known)
    assert len(driver.schemas.asked) - before == 101, "of all that were unknown, the newest"


def test_what_a_task_has_seen_is_not_decided_anew(registry: StandIn) -> None:
    driver = Driver(RegistrySchemas(Registry(registry.url)), taken=5)
    with pytest.raises(UnknownSchemas):
        driver.batch(2)
    assert driver.recorded == [()]


def test_one_that_has_answered_well_may_be_away(driver: Driver) -> None:
    refused, other = RegistryRefused("who?", url="u", status=401), ConfigurationError("x")
    assert driver.deciding.patient(refused) is refused
    driver.batch(1)
    assert isinstance(driver.deciding.patient(refused), RegistryAway)
    assert driver.deciding.patient(other) is other
