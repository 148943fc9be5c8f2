"""Where the Schema Registry is, and how to log in to it: a part of ``[kafka]``.

The password is never part of a command line or a ``repr``.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import SplitResult, urlsplit

import orjson
from pydantic import BaseModel, Field, SecretStr, model_validator

from state_lib.errors import ConfigurationError
from state_lib.kafka_login import read_ca, read_secret
from state_lib.settings.kinds import AbsolutePath, Seconds


@dataclass(frozen=True)
class Registry:
    """What a client of a Schema Registry needs.

    Attributes:
        url: one, or several of the same registry, by commas.
        username, password: None where it wants none.
        ca: the authorities that may sign its certificate, as PEM text: executors need no file.
        fallback: ids that it may not know any more, and the texts of their schemas.
    """

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = field(default=None, repr=False)
    fallback: tuple[tuple[int, tuple[str, ...]], ...] = field(default=(), repr=False)

    def apart(self) -> list[Registry]:
        """It at each of its addresses, if it has several: a replica may lag behind the others."""
        urls = [one.strip() for one in self.url.split(",")]
        return [replace(self, url=one) for one in urls] if len(urls) > 1 else []


class RegistrySettings(BaseModel):
    """The settings that a `Registry` is made of; part of `state_lib.config.Settings`."""

    schema_registry_url: str | None = Field(
        None,
        description="Schema Registry of topics in Avro, http(s)://host:port; several of the same "
        "one by commas.",
    )
    schema_registry_username: str | None = Field(
        None, description="Who logs in to the registry; of a managed one, the API key."
    )
    schema_registry_password: SecretStr | None = Field(
        None, description="Password of the user, or the API secret; better in a file."
    )
    schema_registry_password_file: AbsolutePath | None = Field(
        None, description="File that holds the password; wins over it. Made absolute."
    )
    schema_registry_ssl_ca: AbsolutePath | None = Field(
        None,
        description="PEM file of the authorities that sign the registry's certificate; default: "
        "those of SSL_CERT_FILE, else of Python's package certifi.",
    )
    schema_registry_wait_s: Seconds = Field(
        60.0,
        description="How long a batch waits, in s, for a schema that the registry does not know: "
        "a replica may lag behind the one that a producer has registered it with.",
    )
    schema_registry_unknown: Literal["dead-letter", "stop"] = Field(
        "dead-letter",
        description="What becomes of records whose schema is unknown after that: dead letters, or "
        "the stream stops.",
    )
    schema_registry_fallback: AbsolutePath | None = Field(
        None,
        description="JSON file of schemas that the registry has lost: id -> schema, or a list of "
        "what it refers to and itself, as text. Made absolute.",
    )

    @model_validator(mode="after")
    def _registry_fits(self) -> Self:
        url, secret = (
            self.schema_registry_url,
            self.schema_registry_password_file or self.schema_registry_password,
        )
        files = (self.schema_registry_ssl_ca, self.schema_registry_fallback)
        others = (self.schema_registry_username, secret, *files)
        if url is None:
            if any(others):
                raise ValueError("schema_registry_url is not set: name the registry there")
            return self
        parts = [urlsplit(one.strip()) for one in url.split(",")]
        if any(not _is_address(one) for one in parts):
            raise ValueError("schema_registry_url is http://host:port or https://host:port")
        if any("@" in one.netloc for one in parts):
            raise ValueError(
                "schema_registry_url has a name or a password in it: put them into "
                "schema_registry_username and schema_registry_password_file"
            )
        if ":" in (self.schema_registry_username or ""):
            raise ValueError("schema_registry_username has a colon, which HTTP's log-in forbids")
        if bool(self.schema_registry_username) != bool(secret):
            raise ValueError(
                "schema_registry_username and schema_registry_password_file (or "
                "schema_registry_password) go together"
            )
        if self.schema_registry_ssl_ca and any(one.scheme != "https" for one in parts):
            raise ValueError(
                "schema_registry_url speaks http, which has no certificates: write https, or leave "
                "out schema_registry_ssl_ca"
            )
        return self

    def schema_registry(self) -> Registry | None:
        """How clients reach the registry; None if there is none.

        Raises:
            ConfigurationError: the password's file, that of the authorities or of other schemas
                cannot be used. No other password is tried in its place.
        """
        if self.schema_registry_url is None:
            return None
        ca, fallback = self.schema_registry_ssl_ca, self.schema_registry_fallback
        return Registry(
            self.schema_registry_url,
            self.schema_registry_username,
            self._registry_password(),
            None if ca is None else _authorities(ca),
            () if fallback is None else _schemas(fallback),
        )

    def _registry_password(self) -> str | None:
        if self.schema_registry_password_file is not None:
            setting = "HOLDFAST_SCHEMA_REGISTRY_PASSWORD_FILE"
            return read_secret(self.schema_registry_password_file, setting)
        secret = self.schema_registry_password
        return secret.get_secret_value() if secret else None


def _is_address(url: SplitResult) -> bool:
    try:
        return url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:  # its port is invalid
        return False


def _authorities(path: Path) -> str:
    text = read_ca(path, "HOLDFAST_SCHEMA_REGISTRY_SSL_CA")
    try:
        ssl.create_default_context(cadata=text)
    except ssl.SSLError as error:
        raise ConfigurationError(
            f"HOLDFAST_SCHEMA_REGISTRY_SSL_CA={path} holds no certificate that can be read: "
            f"{error.reason or error}",
            path=str(path),
        ) from error
    return text


def _schemas(path: Path) -> tuple[tuple[int, tuple[str, ...]], ...]:
    setting = f"HOLDFAST_SCHEMA_REGISTRY_FALLBACK={path}"
    try:
        found = orjson.loads(path.read_bytes())
        return tuple((int(number), _texts(one)) for number, one in found.items())
    except OSError as error:
        raise ConfigurationError(f"{setting} cannot be read: {error.strerror}") from error
    except (ValueError, AttributeError) as error:
        raise ConfigurationError(
            f"{setting} is no JSON of schemas by id, as in "
            f'{{"7": {{"type": "record", …}}, "8": ["what 8 refers to", "8 itself"]}}: {error}'
        ) from error


def _texts(schema: Any) -> tuple[str, ...]:
    """A list of text are several; anything else is one schema, a union too."""
    several = isinstance(schema, list) and all(isinstance(one, str) for one in schema)
    made = schema if several else [schema]
    return tuple(one if isinstance(one, str) else orjson.dumps(one).decode() for one in made)
