"""Where the Schema Registry is, and how to log in to it: a part of ``[kafka]``.

The password is never part of a command line or a ``repr``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, SecretStr, model_validator

from state_lib.kafka_login import read_ca, read_secret
from state_lib.settings.kinds import AbsolutePath


@dataclass(frozen=True)
class Registry:
    """What a client of a Schema Registry needs.

    Attributes:
        url: one, or several of the same registry, by commas.
        username, password: None where it wants none.
        ca: the authorities that may sign its certificate, as PEM text: executors need no file.
    """

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = field(default=None, repr=False)


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
        "those that Python trusts.",
    )

    @model_validator(mode="after")
    def _registry_fits(self) -> Self:
        url, secret = (
            self.schema_registry_url,
            self.schema_registry_password_file or self.schema_registry_password,
        )
        others = (self.schema_registry_username, secret, self.schema_registry_ssl_ca)
        if url is None:
            if any(others):
                raise ValueError("schema_registry_url is not set: name the registry there")
            return self
        parts = [urlsplit(one.strip()) for one in url.split(",")]
        if any(one.scheme not in ("http", "https") or not one.hostname for one in parts):
            raise ValueError("schema_registry_url is http://host:port or https://host:port")
        if any("@" in one.netloc for one in parts):
            raise ValueError(
                "schema_registry_url has a name or a password in it: put them into "
                "schema_registry_username and schema_registry_password_file"
            )
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
            ConfigurationError: the password's file or that of the authorities cannot be used. No
                other password is tried in its place.
        """
        if self.schema_registry_url is None:
            return None
        ca = self.schema_registry_ssl_ca
        return Registry(
            self.schema_registry_url,
            self.schema_registry_username,
            self._registry_password(),
            None if ca is None else read_ca(ca, "HOLDFAST_SCHEMA_REGISTRY_SSL_CA"),
        )

    def _registry_password(self) -> str | None:
        if self.schema_registry_password_file is not None:
            setting = "HOLDFAST_SCHEMA_REGISTRY_PASSWORD_FILE"
            return read_secret(self.schema_registry_password_file, setting)
        secret = self.schema_registry_password
        return secret.get_secret_value() if secret else None
