"""Asking a Schema Registry: what it says, what it does not know, and when it is away."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from state_lib.config import Settings
from state_lib.errors import ConfigurationError, RegistryAway, RegistryRefused
from state_lib.settings.registry import Registry
from state_lib.spark.avro.declaring import reader_of
from state_lib.spark.avro.registry import RegistrySchemas, newest
from state_lib.spark.avro.schema import columns_of
from state_lib.stack.ports import free_port
from tests.support.registry import StandIn, record
from tests.support.small_http import serving

LOGIN = ("flights", "s3:cret")
SCHEMA = record("Flight", origin="string")


@pytest.fixture
def registry() -> Iterator[StandIn]:
    with serving(StandIn(LOGIN)) as server:
        yield server


@pytest.fixture
def schemas(registry: StandIn) -> RegistrySchemas:
    return RegistrySchemas(Registry(registry.url, *LOGIN))


def test_schemas_by_id_with_what_they_refer_to(registry: StandIn, schemas: RegistrySchemas) -> None:
    inner = registry.register("airport", record("Airport", code="string"))
    outer = registry.register(
        "flights-value",
        record("Flight", origin="holdfast.tests.Airport"),
        references=[{"name": "holdfast.tests.Airport", "subject": "airport", "version": 1}],
    )
    other = registry.register("others-value", '{"type": "object"}', schemaType="JSON")
    assert schemas.of(inner) == (json.dumps(record("Airport", code="string")),)
    found = schemas.of(outer)
    assert found is not None
    assert [json.loads(text)["name"] for text in found] == ["Airport", "Flight"]
    assert schemas.of(other) == ()
    assert schemas.of(99) is None
    assert schemas.of(2**32 - 1) is None, "not asked: it would be no number to a registry"
    assert newest(schemas.registry, "flights-value") == (found, 1)


def test_the_newest_is_pinned(registry: StandIn) -> None:
    registry.register("flights-value", SCHEMA)
    settings = Settings.load(
        schema_registry_url=registry.url,
        schema_registry_username=LOGIN[0],
        schema_registry_password=LOGIN[1],
    )
    text = reader_of("flights", None, lambda: settings)
    assert columns_of(text).fieldNames() == ["origin"]
    registry.register("flights-value", record("Flight", origin="string", at=("long", 0)))
    later = reader_of("flights", None, lambda: settings)
    assert columns_of(later).fieldNames() == ["origin", "at"]
    with pytest.raises(ConfigurationError, match="no such subject: 'others-value'"):
        reader_of("others", None, lambda: settings)


def test_a_registry_that_is_away(registry: StandIn, schemas: RegistrySchemas) -> None:
    registry.away = True
    with pytest.raises(RegistryAway, match=rf"{registry.url} cannot be asked for schema 1: it is"):
        schemas.of(1)
    nobody = RegistrySchemas(Registry(f"http://127.0.0.1:{free_port()}"))
    with pytest.raises(RegistryAway, match="cannot be asked"):
        nobody.of(1)


def test_what_is_wrong_with_the_address_or_the_login_is_no_answer(registry: StandIn) -> None:
    """Or every record would be a dead letter."""
    number = registry.register("flights-value", SCHEMA)
    with pytest.raises(RegistryRefused, match="Unauthorized"):
        RegistrySchemas(Registry(registry.url, "flights", "wrong")).of(number)
    with pytest.raises(RegistryRefused, match="schema_registry_url"):
        RegistrySchemas(Registry(f"{registry.url}/elsewhere", *LOGIN)).of(number)
