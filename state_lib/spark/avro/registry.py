"""Schemas of a Schema Registry: by id, for records, and the newest of a topic, to read by."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from state_lib.errors import ConfigurationError, RegistryAway, RegistryRefused
from state_lib.settings.registry import Registry

A = TypeVar("A")
_TIMEOUT_S, _TRIES_AGAIN, _WAIT_MS = 10, 2, 200
_NOT_FOUND = 404
_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA = 40401, 40402, 40403
"""What the registry itself says of what it does not know. A 404 without it is somebody else's."""
_LATER = (408, 429, 500, 502, 503, 504)
_LARGEST = 2**31 - 1
_clients: dict[Registry, SchemaRegistryClient] = {}


class Schemas(Protocol):
    """Where records' schemas are. It travels to executors, and is compared by what it says."""

    def of(self, number: int) -> tuple[str, ...] | None:
        """Texts of a schema, as `state_lib.spark.avro.schema.normal` takes them.

        Empty if it is of another kind than Avro; None if nobody knows the id.

        Raises:
            RegistryAway: trying again is right.
            RegistryRefused: log-in, certificate or address are wrong.
        """

    @property
    def url(self) -> str:
        """Where they are, for messages."""

    def __hash__(self) -> int:
        """What was read by them is remembered."""


@dataclass(frozen=True)
class RegistrySchemas:
    """Those of a registry. Remembers none: what is remembered of it is bounded elsewhere."""

    registry: Registry

    @property
    def url(self) -> str:
        """See `Schemas`."""
        return self.registry.url

    def of(self, number: int) -> tuple[str, ...] | None:
        """See `Schemas`."""
        if number > _LARGEST:
            return None
        client = _client(self.registry)

        def ask() -> tuple[str, ...]:
            return _texts(client, client.get_schema(number))

        try:
            return _asked(self.registry, ask, f"for schema {number}", (_NO_SCHEMA,))
        finally:
            client.clear_caches()  # it keeps all that it ever saw


def newest(registry: Registry, subject: str) -> tuple[tuple[str, ...], int]:
    """The newest schema of a subject, as `Schemas.of` gives one, and its version.

    Raises:
        ConfigurationError: there is no such subject, or its schemas are of another kind than Avro.
        RegistryAway, RegistryRefused: as `Schemas.of`.
    """
    client = _client(registry)

    def ask() -> tuple[tuple[str, ...], int]:
        found = client.get_version(subject, "latest")
        return _texts(client, found.schema), found.version or 0

    try:
        found = _asked(registry, ask, f"for {subject!r}", (_NO_SUBJECT, _NO_VERSION))
    finally:
        client.clear_caches()
    if found is None or not found[0]:
        why = "no such subject" if found is None else "no Avro under that subject"
        raise ConfigurationError(
            f"the Schema Registry at {registry.url} has {why}: {subject!r}. Give the schema to "
            "read by, as text or as the Path of a file: app.stream(..., schema=...)",
            subject=subject,
        )
    return found


def _texts(client: SchemaRegistryClient, schema: Schema) -> tuple[str, ...]:
    """A schema behind all that it refers to, each once."""
    found: dict[str, None] = {}

    def add(one: Schema) -> None:
        for reference in one.references or ():
            add(client.get_version(str(reference.subject), reference.version or "latest").schema)
        found[str(one.schema_str)] = None

    if (schema.schema_type or "AVRO") != "AVRO":
        return ()
    add(schema)
    return tuple(found)


def _client(registry: Registry) -> SchemaRegistryClient:
    if registry not in _clients:
        conf: dict[str, object] = {
            "url": registry.url,
            "timeout": _TIMEOUT_S,
            "max.retries": _TRIES_AGAIN,
            "retries.wait.ms": _WAIT_MS,
        }
        if registry.username is not None:
            conf["basic.auth.user.info"] = f"{registry.username}:{registry.password}"
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            if registry.ca is not None:  # it is read at once
                file.write(registry.ca)
                file.flush()
                conf["ssl.ca.location"] = file.name
            _clients[registry] = SchemaRegistryClient(conf)
    return _clients[registry]


def _asked(
    registry: Registry, ask: Callable[[], A], what: str, unknown: tuple[int, ...]
) -> A | None:
    """The registry's answer; None if it does not know what it was asked for."""
    url = registry.url
    try:
        return ask()
    except SchemaRegistryError as error:
        status, code = error.http_status_code, error.error_code
        if status == _NOT_FOUND and code in unknown:
            return None
        reason = f"{error.error_message} (HTTP {status})"
        if status in _LATER:
            raise RegistryAway(
                f"the Schema Registry at {url} cannot be asked {what}: {reason}. It is asked again",
                url=url,
                reason=reason,
            ) from error
        raise RegistryRefused(
            f"the Schema Registry at {url} refused to be asked {what}: {reason}. Look at "
            "schema_registry_url, schema_registry_username and its password",
            url=url,
            status=status,
        ) from error
    except Exception as error:  # no answer, or none of a registry: httpx's, or its successor's
        raise RegistryAway(
            f"the Schema Registry at {url} cannot be asked {what}: {error}. It is asked again; if "
            "it does not come back, look at it, and at schema_registry_url",
            url=url,
            reason=str(error),
        ) from error
