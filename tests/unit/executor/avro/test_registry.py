"""Asking a Schema Registry: what it says, what it does not know, and when it is away."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from state_lib.config import Settings
from state_lib.errors import ConfigurationError, RegistryAway, RegistryRefused
from state_lib.executor.avro.decode import decoded
from state_lib.executor.avro.registry import RegistrySchemas, newest
from state_lib.executor.avro.schema import columns_of, pinned
from state_lib.settings.registry import Registry
from state_lib.spark.avro.declaring import reader_of
from state_lib.stack.ports import free_port
from tests.support.registry import StandIn, framed, record
from tests.support.secured import certificates
from tests.support.small_http import serving

LOGIN = ("flights", "s3:cret")
SCHEMA = record("Flight", origin="string")
OUTER = record("Flight", origin="holdfast.tests.Airport")
REFERS = [{"name": "holdfast.tests.Airport", "subject": "airport", "version": 1}]


@pytest.fixture
def registry() -> Iterator[StandIn]:
    with serving(StandIn(LOGIN)) as server:
        yield server


@pytest.fixture
def schemas(registry: StandIn) -> RegistrySchemas:
    return RegistrySchemas(Registry(registry.url, *LOGIN))


def test_schemas_by_id_with_what_they_refer_to(registry: StandIn, schemas: RegistrySchemas) -> None:
    inner = registry.register("airport", record("Airport", code="string"))
    outer = registry.register("flights-value", OUTER, references=REFERS)
    other = registry.register("others-value", '{"type": "object"}', schemaType="JSON")
    assert schemas.of(inner) == (json.dumps(record("Airport", code="string")),)
    found = schemas.of(outer)
    assert found is not None
    assert [json.loads(text)["name"] for text in found] == ["Airport", "Flight"]
    assert schemas.of(other) == ()
    assert schemas.of(99) is None
    assert schemas.of(2**32 - 1) is None, "not asked: it would be no number to a registry"
    assert newest(schemas.registry, "flights-value") == (found, 1)


def test_what_is_referred_to_may_be_deleted_softly(
    registry: StandIn, schemas: RegistrySchemas
) -> None:
    inner = registry.register("airport", record("Airport", code="string"))
    outer = registry.register("flights-value", OUTER, references=REFERS)
    registry.delete("airport", 1)
    assert len(schemas.of(outer) or ()) == 2
    registry.forget(inner)
    for ask in (lambda: schemas.of(outer), lambda: newest(schemas.registry, "flights-value")):
        with pytest.raises(RegistryRefused, match="refers to version 1 of 'airport'"):
            ask()


def settings_of(registry: StandIn) -> Settings:
    return Settings.load(
        schema_registry_url=registry.url,
        schema_registry_username=LOGIN[0],
        schema_registry_password=LOGIN[1],
    )


def test_the_newest_is_pinned(registry: StandIn) -> None:
    registry.register("flights-value", SCHEMA)
    settings = settings_of(registry)
    text = reader_of("flights", None, lambda: settings)
    assert columns_of(text).fieldNames() == ["origin"]
    registry.register("flights-value", record("Flight", origin="string", at=("long", 0)))
    later = reader_of("flights", None, lambda: settings)
    assert columns_of(later).fieldNames() == ["origin", "at"]
    with pytest.raises(ConfigurationError, match="no such subject: 'others-value'"):
        reader_of("others", None, lambda: settings)
    registry.delete("flights-value", 2)
    again = reader_of("flights", None, lambda: settings)
    assert again == text, "so one goes back"


def test_a_declaration_waits_for_a_registry_that_is_away(registry: StandIn) -> None:
    registry.register("flights-value", SCHEMA)
    registry.away = True
    back = threading.Timer(1.0, setattr, (registry, "away", False))
    back.start()
    text = reader_of("flights", None, lambda: settings_of(registry))
    back.join()
    assert columns_of(text).fieldNames() == ["origin"]


def test_a_registry_that_is_away(registry: StandIn, schemas: RegistrySchemas) -> None:
    registry.away = True
    with pytest.raises(RegistryAway, match=rf"{registry.url} cannot be asked for schema 1: it is"):
        schemas.of(1)
    nobody = RegistrySchemas(Registry(f"http://127.0.0.1:{free_port()}"))
    with pytest.raises(RegistryAway, match="cannot be asked"):
        nobody.of(1)


def test_what_a_worker_has_read_it_does_not_ask_for(
    registry: StandIn, schemas: RegistrySchemas
) -> None:
    number = registry.register("flights-value", SCHEMA)
    value, text = framed(number, SCHEMA, {"origin": "JFK"}), pinned([json.dumps(SCHEMA)], "it")
    for registry.away in (False, True):
        (made,) = decoded(iter([pa.array([value], pa.binary())]), text, schemas)
        assert made.to_pylist() == [{"row": {"origin": "JFK"}, "why": None, "said": None}]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((404, b"<html>no such page</html>"), "no such page"),
        ((401, {"error_code": 401, "message": "who?"}), r"who\? \(HTTP 401\)"),
        ((200, b"<html>log in</html>"), "no Schema Registry"),
        ((200, {"what": "else"}), "no Schema Registry"),
        ((204, b""), "no Schema Registry"),
        ((302, b""), "HTTP 302"),
        ((404, b"x" * 100_000), "xxx"),
    ],
)
def test_what_is_none_of_a_registrys_answers_is_refused(
    registry: StandIn, schemas: RegistrySchemas, answer: Any, said: str
) -> None:
    """Or every record would be a dead letter."""
    registry.register("flights-value", SCHEMA)
    registry.instead = answer
    with pytest.raises(RegistryRefused, match=said) as refused:
        schemas.of(1)
    assert len(refused.value.message) < 600


@pytest.mark.parametrize("code", [40401, 40403])
def test_an_id_is_unknown_by_either_of_two_codes(
    registry: StandIn, schemas: RegistrySchemas, code: int
) -> None:
    """The first is that of newer versions of Apicurio: its schema was deleted for good."""
    registry.instead = (404, {"error_code": code, "message": "Subject not found."})
    assert schemas.of(1) is None


def test_what_is_wrong_with_the_address_or_the_login_is_no_answer(registry: StandIn) -> None:
    """As above."""
    number = registry.register("flights-value", SCHEMA)
    with pytest.raises(RegistryRefused, match="Unauthorized"):
        RegistrySchemas(Registry(registry.url, "flights", "wrong")).of(number)
    with pytest.raises(RegistryRefused, match="schema_registry_url"):
        RegistrySchemas(Registry(f"{registry.url}/elsewhere", *LOGIN)).of(number)


def test_an_id_that_one_address_does_not_know_is_asked_of_the_others(registry: StandIn) -> None:
    """A replica may lag; one that is away is no reason either."""
    number = registry.register("flights-value", SCHEMA)
    with serving(StandIn(LOGIN)) as stale:
        dead = f"http://127.0.0.1:{free_port()}"
        schemas = RegistrySchemas(Registry(f"{stale.url}, {dead},{registry.url}", *LOGIN))
        assert schemas.of(number) == (json.dumps(SCHEMA),)
        assert schemas.of(number + 1) is None
        registry.instead = (401, {"error_code": 401, "message": "who?"})
        assert schemas.of(number) is None


def test_schemas_that_it_has_lost_are_in_a_file(registry: StandIn) -> None:
    lost = ((7, (json.dumps(SCHEMA),)),)
    schemas = RegistrySchemas(Registry(registry.url, *LOGIN, fallback=lost))
    assert schemas.of(7) == (json.dumps(SCHEMA),)
    assert schemas.of(8) is None
    own = record("Own", x="int")
    for _ in range(7):
        registry.register("others-value", own | {"doc": str(_)})
    assert schemas.of(7) == (json.dumps(own | {"doc": "6"}),), "what it knows it says"


def test_whether_it_knows_any_schema(registry: StandIn, schemas: RegistrySchemas) -> None:
    assert not schemas.knows_any(["flights"])
    registry.register("other-names", SCHEMA)
    assert schemas.knows_any(["flights"])
    registry.instead = (403, {"error_code": 40301, "message": "that is a secret"})
    assert schemas.knows_any(["flights"]), "who may not ask cannot tell"


def test_certificates_are_looked_at(tmp_path: Path) -> None:
    for name in ("ours", "others"):
        (tmp_path / name).mkdir()
        certificates(tmp_path / name, tmp_path / f"{name}.pem")
    server = StandIn()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "ours" / "server.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    url = f"https://127.0.0.1:{server.port}"
    with serving(server):
        number = server.register("flights-value", SCHEMA)

        def of(ca: str | None) -> RegistrySchemas:
            given = None if ca is None else str(tmp_path / ca)
            settings = Settings.load(schema_registry_url=url, schema_registry_ssl_ca=given)
            registry = settings.schema_registry()
            assert registry is not None
            return RegistrySchemas(registry)

        assert of("ours.pem").of(number) == (json.dumps(SCHEMA),)
        for wrong in ("others.pem", None):
            with pytest.raises(RegistryRefused, match="schema_registry_ssl_ca"):
                of(wrong).of(number)
