"""Topics in Avro through a Schema Registry that really runs, written by Confluent's serializer."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import SparkSession

from state_lib import Application, agg
from state_lib.changelog.admin import _await
from state_lib.changelog.progress import ProgressLog
from state_lib.changelog.topics import TopicPlan, dead_letter_queue
from state_lib.config import Settings
from state_lib.errors import ConfigurationError, HoldfastError, RegistryAway, RegistryRefused
from state_lib.executor.avro.registry import RegistrySchemas, newest
from state_lib.executor.avro.schema import columns_of
from state_lib.host.tasks import TaskManager
from state_lib.kafka import Kafka
from state_lib.serdes import serde_from
from state_lib.settings.registry import Registry
from state_lib.spark import handle
from state_lib.spark.avro.declaring import reader_of
from state_lib.stack.broker import LocalBroker
from state_lib.stack.ports import free_port
from tests.support.apicurio import LOGIN, Apicurio
from tests.support.apps import App
from tests.support.environment import set_environment
from tests.support.fold import committed
from tests.support.hosts import address, served
from tests.support.registry import StandIn, framed, record
from tests.support.small_http import serving
from tests.support.waiting import until

PARTITIONS, SOON_S, NOBODYS = 2, 60.0, 99_999
FLIGHT = record("Flight", origin="string")
NEWER = record("Flight", origin="string", seats=("long", 7))
WITH_GATE = record("Flight", origin="string", seats=("long", 7), gate=("string", "?"))
WITH_TAIL = record("Flight", origin="string", seats=("long", 7), tail=("string", "?"))
AIRPORT = "holdfast.tests.Airport"
JSON_SCHEMA = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def registry(apicurio: Apicurio) -> Apicurio:
    """It runs, whatever the test before has left."""
    return apicurio.start()


class World:
    """An application that reads a topic by its newest schema, its host, and producers."""

    def __init__(self, kafka: Kafka, name: str, root: Path, registry: Apicurio) -> None:
        self.kafka, self.name, self.root, self.registry = kafka, name, root, registry
        self.source, self.at = f"{name}-in", address()
        kafka.admin().create_topics([NewTopic(self.source, PARTITIONS, 1)])[self.source].result()
        _await(kafka.admin(), [TopicPlan(self.source, PARTITIONS)])
        self._producer, self._stack = kafka.producer(), ExitStack()

    def start(self, session: SparkSession) -> Any:
        app = Application(self.name, session, partitions=PARTITIONS)
        rows = app.stream(self.source, format="avro")
        rows.groupBy("origin").agg("flown", n=agg.count(), seats=agg.sum("seats"))
        self._serde = serde_from(app.aggregations[0].store.value_serde)
        made = App(self.kafka, app.topology, self.root)
        made.create()
        self._host: TaskManager = self._stack.enter_context(served(made, self.at))
        return app.start()

    def value(self, schema: Any, **fields: Any) -> bytes:
        """As a producer makes it: its serializer registers the schema."""
        conf = {"url": self.registry.url, "basic.auth.user.info": ":".join(LOGIN)}
        serializer = AvroSerializer(SchemaRegistryClient(conf), json.dumps(schema))
        made = serializer(fields, SerializationContext(self.source, MessageField.VALUE))
        assert made is not None
        return bytes(made)

    def send(self, *values: bytes) -> None:
        for at, value in enumerate(values):
            self._producer.produce(self.source, value, partition=at % PARTITIONS)
        assert self._producer.flush(10) == 0

    def flown(self) -> dict[str, tuple[int, int]]:
        """Flights and seats of each airport."""
        found: dict[bytes, bytes] = {}
        with suppress(HoldfastError):  # it is not open yet
            for p in range(PARTITIONS):
                found |= dict(self._host.task(self.name, p).scan("flown")[1])
        rows = {k.decode(): self._serde.deserialize(v[8:]) for k, v in found.items()}
        return {key: (row["n"], row["seats"]) for key, row in rows.items()}

    def batches(self) -> int:
        """Those on record."""
        return len(ProgressLog(self.kafka, self.name).read())

    def letters(self) -> list[tuple[bytes, bytes]]:
        """Reasons and exceptions of dead letters."""
        brokers, queue = (
            str(self.kafka.properties["bootstrap.servers"]),
            dead_letter_queue(self.name),
        )
        messages = [m for p in range(PARTITIONS) for m in committed(brokers, queue, p)]
        headers: list[Any] = [dict(m.headers() or []) for m in messages]
        said = "__streams.errors.{}".format
        return [(h[said("message")], h[said("exception")]) for h in headers]

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def world(
    broker: LocalBroker,
    kafka: Kafka,
    name: str,
    tmp_path: Path,
    registry: Apicurio,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[World]:
    made = World(kafka, name, tmp_path / "host", registry)
    settings = Settings.load(
        home=tmp_path / "home",
        bootstrap_servers=broker.bootstrap,
        replication_factor=1,
        hosts=str(made.at),
        exchange_timeout_s=120,
        stop_timeout_s=2,
        spark_ui_port=free_port(),
        schema_registry_wait_s=2,
        **registered(registry),
    )
    set_environment(monkeypatch, settings)
    # It would be that of all tests after these.
    monkeypatch.setattr(handle, "configure_logging", lambda *_: None)
    yield made
    made.close()


def registered(registry: Apicurio) -> dict[str, Any]:
    name, password = LOGIN
    return {
        "schema_registry_url": registry.url,
        "schema_registry_username": name,
        "schema_registry_password": password,
    }


def test_an_application_by_schemas_that_change(
    spark: SparkSession, world: World, registry: Apicurio
) -> None:
    """Producers are older than it and newer; one has another registry; it is away for a while."""
    world.send(
        world.value(FLIGHT, origin="JFK"),
        world.value(NEWER, origin="JFK", seats=100),
    )
    query = world.start(spark)
    until(lambda: world.flown() == {"JFK": (2, 107)}, SOON_S, "read by the newest schema")
    world.send(world.value(WITH_GATE, origin="LGA", seats=5, gate="A1"))
    until(lambda: world.flown().get("LGA") == (1, 5), SOON_S, "read by the schema of its start")

    fields = {"origin": "EWR", "seats": 1, "gate": "B2"}
    world.send(framed(NOBODYS, WITH_GATE, fields), world.value(WITH_GATE, **fields))
    until(lambda: world.flown().get("EWR") == (1, 1), SOON_S, "gone on without the other")
    letters = [(b"unknown-schema", f"schema {NOBODYS}".encode())]
    assert world.letters() == letters

    value, before = world.value(WITH_TAIL, origin="JFK", seats=3, tail="N14228"), world.batches()
    registry.stop()
    world.send(value)
    until(lambda: world.batches() > before, SOON_S, "a batch that needs the registry")
    assert (query.isActive, world.flown()["JFK"]) == (True, (2, 107))
    registry.start()
    until(lambda: world.flown()["JFK"] == (3, 110), SOON_S, "gone on with the registry")
    query.stop()
    assert query.exception() is None
    assert world.letters() == letters, "none for a registry that was away"


def test_a_stream_is_declared_once_the_registry_is_back(registry: Apicurio, name: str) -> None:
    number = registry.register(f"{name}-value", FLIGHT)
    schemas = RegistrySchemas(registry.known)
    assert schemas.of(number) is not None
    registry.stop()
    with pytest.raises(RegistryAway, match=rf"{registry.url} cannot be asked for schema {number}"):
        schemas.of(number)
    back = threading.Thread(target=registry.start)
    back.start()
    settings = Settings.load(exchange_timeout_s=120, **registered(registry))
    text = reader_of(name, None, lambda: settings)
    back.join()
    assert columns_of(text).fieldNames() == ["origin"]
    assert schemas.of(number) is not None, "it has the same ids"


def test_what_it_does_not_have(registry: Apicurio, name: str) -> None:
    subject, schemas = f"{name}-value", RegistrySchemas(registry.known)
    with pytest.raises(ConfigurationError, match=f"no such subject: '{subject}'"):
        newest(registry.known, subject)
    assert schemas.of(NOBODYS) is None
    own = record("Own", origin="string"), record("Own", origin="string", seats=("long", 7))
    first, second = (registry.register(subject, one) for one in own)  # and in no other subject
    registry.delete(subject, 2)
    assert newest(registry.known, subject) == (schemas.of(first), 1), "so one goes back"
    assert schemas.of(second) is not None, "records that have it are still there"
    registry.forget(subject, 1)
    assert schemas.of(first) is None
    with pytest.raises(ConfigurationError, match="no such subject"):
        newest(registry.known, subject)
    assert schemas.knows_any([name])


def test_schemas_that_refer_to_others(registry: Apicurio, name: str) -> None:
    inner, outer = record("Airport", code="string"), record("Flight", origin=AIRPORT)
    registry.register(f"{name}-airport", inner)
    refers = [{"name": AIRPORT, "subject": f"{name}-airport", "version": 1}]
    number = registry.register(f"{name}-value", outer, references=refers)
    found, version = newest(registry.known, f"{name}-value")
    assert ([json.loads(text) for text in found], version) == ([inner, outer], 1)
    assert RegistrySchemas(registry.known).of(number) == found


def test_schemas_that_are_not_avro(registry: Apicurio, name: str) -> None:
    number = registry.register(f"{name}-value", JSON_SCHEMA, schemaType="JSON")
    assert RegistrySchemas(registry.known).of(number) == ()
    with pytest.raises(ConfigurationError, match="no Avro under that subject"):
        newest(registry.known, f"{name}-value")


def test_what_refuses_to_be_asked(registry: Apicurio, name: str) -> None:
    number = registry.register(f"{name}-value", FLIGHT)
    elsewhere = registry.url.replace("ccompat", "elsewhere")
    for wrong, status in (
        (Registry(registry.url, LOGIN[0], "wrong"), 401),
        (Registry(registry.url), 401),
        (Registry(elsewhere, *LOGIN), 404),
    ):
        said = rf"\(HTTP {status}\)\. Look at schema_registry_url"
        with pytest.raises(RegistryRefused, match=said):
            RegistrySchemas(wrong).of(number)


def answers(at: Apicurio | StandIn, subject: str) -> list[Any]:
    """What it says of schemas that it is given; ids are its own."""
    old, new = at.register(subject, FLIGHT), at.register(subject, NEWER)
    assert old != new
    assert (at.register(subject, FLIGHT), at.register(f"{subject}-2", FLIGHT)) == (old, old)
    at.delete(subject, 2)
    asked = {
        "old": f"schemas/ids/{old}",
        "new": f"schemas/ids/{new}",
        "no": f"schemas/ids/{NOBODYS}",
    }
    versions = (f"{subject}/versions/{one}" for one in ("latest", "1", "2", "2?deleted=true", "9"))
    asked |= {path: f"subjects/{path}" for path in (*versions, "nobodys-value/versions/latest")}
    found: list[Any] = []
    for name, path in asked.items():
        answer = httpx.get(f"{at.url}/{path}", auth=LOGIN)
        body = answer.json()
        schema = json.loads(body.get("schema", "null"))
        own = {old: "old", new: "new"}.get(body.get("id"))
        found.append((name, answer.status_code, body.get("error_code"), schema, own))
    return found


def test_the_stand_in_says_what_it_says(registry: Apicurio, name: str) -> None:
    """Which other tests have instead: it can be made to say what a registry does seldom."""
    with serving(StandIn(LOGIN)) as stand_in:
        assert answers(stand_in, name) == answers(registry, name)
