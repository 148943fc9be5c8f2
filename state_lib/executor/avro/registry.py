"""Schemas of a Schema Registry: by id, for records, and the newest of a topic, for its reader."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol, TypeVar

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from state_lib.errors import ConfigurationError, RegistryAway, RegistryRefused
from state_lib.settings.registry import Registry

A = TypeVar("A")
_TIMEOUT_S, _TRIES_AGAIN, _WAIT_MS = 10, 2, 200
_NOT_FOUND = 404
_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA = 40401, 40402, 40403
"""Error codes of the registry for what it does not know. A 404 without one is not from it."""
_NO_SUCH = (_NO_SUBJECT, _NO_VERSION)
_NO_ID = (_NO_SCHEMA, _NO_SUBJECT)
"""Of an id; the second from Apicurio, where it was known and is in no subject any more."""
_SAID = 200
"""Characters of a server's answer in a message: it may be a whole page."""
_LATER = (408, 429, 500, 502, 503, 504)
_LARGEST = 2**31 - 1
_clients: dict[Registry, SchemaRegistryClient] = {}


class Schemas(Protocol):
    """A source of schemas. It is sent to executors, and compared by value."""

    def of(self, number: int) -> tuple[str, ...] | None:
        """Texts of a schema, as `state_lib.executor.avro.schema.normal` takes them.

        Empty if it is not an Avro schema; None if the id is unknown.

        Raises:
            RegistryAway: try again.
            RegistryRefused: login, certificate or address are wrong.
        """

    def knows_any(self, topics: Sequence[str]) -> bool:
        """Whether it has any schema, of these topics or of others. Raises as `of`."""

    @property
    def url(self) -> str:
        """The address, for messages."""

    def __hash__(self) -> int:
        """Results are cached by it."""


@dataclass(frozen=True)
class RegistrySchemas:
    """The schemas of a registry, not cached: callers have a bounded cache."""

    registry: Registry

    @property
    def url(self) -> str:
        """See `Schemas`."""
        return self.registry.url

    def of(self, number: int) -> tuple[str, ...] | None:
        """See `Schemas`."""
        if number > _LARGEST:
            return None
        found = _schema(self.registry, number)
        if found is not None:
            return found
        for one in self.registry.apart():
            with suppress(RegistryAway, RegistryRefused):  # another address has answered
                found = _schema(one, number)
            if found is not None:
                return found
        return dict(self.registry.fallback).get(number)

    def knows_any(self, topics: Sequence[str]) -> bool:
        """See `Schemas`. True also for a registry that does not list its subjects."""
        client = _client(self.registry)
        try:
            for topic in topics:
                subject = subject_of(topic)
                ask = partial(client.get_version, subject, "latest", deleted=True)
                if _asked(self.registry, ask, f"for {subject!r}", _NO_SUCH) is not None:
                    return True
            return _asked(self.registry, client.get_subjects, "for its subjects") != []
        except RegistryRefused:
            return True
        finally:
            client.clear_caches()


def subject_of(topic: str) -> str:
    """The subject of a topic's values by the default naming strategy."""
    return f"{topic}-value"


def newest(registry: Registry, subject: str) -> tuple[tuple[str, ...], int]:
    """The newest schema of a subject, in the form of `Schemas.of`, and its version.

    Raises:
        ConfigurationError: there is no such subject, or its schemas are not Avro.
        RegistryAway, RegistryRefused: as `Schemas.of`.
    """
    client = _client(registry)

    def ask() -> tuple[tuple[str, ...], int]:
        found = client.get_version(subject, "latest")
        return _texts(client, found.schema), found.version or 0

    try:
        found = _asked(registry, ask, f"for {subject!r}", _NO_SUCH)
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


def _schema(registry: Registry, number: int) -> tuple[str, ...] | None:
    client = _client(registry)

    def ask() -> tuple[str, ...]:
        return _texts(client, client.get_schema(number))

    try:
        return _asked(registry, ask, f"for schema {number}", _NO_ID)
    finally:
        client.clear_caches()  # else they grow without bound


def _texts(client: SchemaRegistryClient, schema: Schema) -> tuple[str, ...]:
    """A schema after all that it refers to, each once."""
    found: dict[str, None] = {}

    def add(one: Schema) -> None:
        for reference in one.references or ():
            add(_referred(client, str(reference.subject), reference.version or "latest"))
        if one.schema_str is None:
            raise ValueError("there is no schema in its answer")
        found[str(one.schema_str)] = None

    if (schema.schema_type or "AVRO") != "AVRO":
        return ()
    add(schema)
    return tuple(found)


def _referred(
    client: SchemaRegistryClient, subject: str, version: int | Literal["latest"]
) -> Schema:
    """A schema that another refers to; soft-deleted ones are still found."""
    try:
        return client.get_version(subject, version, deleted=True).schema
    except SchemaRegistryError as error:
        if error.http_status_code != _NOT_FOUND or error.error_code not in _NO_SUCH:
            raise
        raise RegistryRefused(
            f"the Schema Registry has a schema that refers to version {version} of {subject!r}, "
            "and does not have that any more. Bring it back there, or give the whole schema by its "
            "id in schema_registry_fallback",
            subject=subject,
            version=version,
        ) from error


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
            if registry.ca is not None:  # the file is read here
                file.write(registry.ca)
                file.flush()
                conf["ssl.ca.location"] = file.name
            _clients[registry] = SchemaRegistryClient(conf)
    return _clients[registry]


def _asked(
    registry: Registry, ask: Callable[[], A], what: str, unknown: tuple[int, ...] = ()
) -> A | None:
    """The registry's answer; None if what was asked for is unknown there."""
    look = "Look at schema_registry_url, schema_registry_username and its password"
    try:
        return ask()
    except RegistryRefused:
        raise
    except SchemaRegistryError as error:
        status, code = error.http_status_code, error.error_code
        if status == _NOT_FOUND and code in unknown:
            return None
        reason = f"{str(error.error_message)[:_SAID]} (HTTP {status})"
        if status in _LATER:
            raise _away(registry, what, reason) from error
        raise _refused(registry, what, f"{reason}. {look}", status) from error
    except (ValueError, TypeError, AttributeError, KeyError) as error:  # bad JSON
        reason = f"what answers is no Schema Registry ({str(error)[:_SAID]}). {look}"
        raise _refused(registry, what, reason) from error
    except Exception as error:  # no answer: httpx's errors, or its successor's
        if _is_distrusted(error):
            reason = f"{str(error)[:_SAID]}. Look at its certificate, and at schema_registry_ssl_ca"
            raise _refused(registry, what, reason) from error
        raise _away(registry, what, str(error)[:_SAID] or type(error).__name__) from error


def _is_distrusted(error: BaseException | None) -> bool:
    """Whether a certificate was not accepted: httpx has that in the cause of an error."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error is not None


def _away(registry: Registry, what: str, reason: str) -> RegistryAway:
    return RegistryAway(
        f"the Schema Registry at {registry.url} cannot be asked {what}: {reason}. It is asked "
        "again; if it does not come back, look at it, and at schema_registry_url",
        url=registry.url,
        reason=reason,
    )


def _refused(
    registry: Registry, what: str, reason: str, status: int | None = None
) -> RegistryRefused:
    return RegistryRefused(
        f"the Schema Registry at {registry.url} refused to be asked {what}: {reason}",
        url=registry.url,
        status=status,
    )
