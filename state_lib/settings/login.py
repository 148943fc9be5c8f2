"""The settings of a log-in to brokers; apart from `KafkaLogin`, for workers import no pydantic."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import BaseModel, Field, SecretStr, field_validator, model_validator

from state_lib.kafka_login import KafkaLogin, Mechanism, Protocol, read_ca, read_secret


class LoginSettings(BaseModel):
    """The settings that a `KafkaLogin` is made of; part of `state_lib.config.Settings`."""

    kafka_security_protocol: Protocol = Field(
        "PLAINTEXT", description="How to speak to the brokers, in Kafka's words."
    )
    kafka_sasl_mechanism: Mechanism = Field(
        "SCRAM-SHA-512", description="How to log in, with SASL_PLAINTEXT and SASL_SSL."
    )
    kafka_sasl_username: str | None = Field(None, description="Who logs in to the brokers.")
    kafka_sasl_password: SecretStr | None = Field(
        None, description="Password of the user; better in a file."
    )
    kafka_sasl_password_file: Path | None = Field(
        None, description="File that holds the password; wins over it. Made absolute."
    )
    kafka_ssl_ca: Path | None = Field(
        None, description="PEM file of the authorities that sign brokers' certificates."
    )

    @field_validator("kafka_sasl_password_file", "kafka_ssl_ca")
    @classmethod
    def _absolute_files(cls, path: Path | None) -> Path | None:
        return path.expanduser().absolute() if path else None

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        sasl = self.kafka_security_protocol.startswith("SASL_")
        secret = self.kafka_sasl_password_file or self.kafka_sasl_password
        if sasl and not (self.kafka_sasl_username and secret):
            raise ValueError(
                f"kafka_security_protocol {self.kafka_security_protocol} needs "
                "kafka_sasl_username, and kafka_sasl_password_file (or kafka_sasl_password)"
            )
        if not sasl and (self.kafka_sasl_username or secret):
            raise ValueError(
                f"kafka_security_protocol {self.kafka_security_protocol} sends no name and no "
                "password: set it to SASL_SSL, or leave both out"
            )
        if self.kafka_ssl_ca and not self.kafka_security_protocol.endswith("SSL"):
            raise ValueError(
                f"kafka_security_protocol {self.kafka_security_protocol} has no certificates: set "
                "it to SSL or SASL_SSL, or leave out kafka_ssl_ca"
            )
        return self

    def kafka_login(self) -> KafkaLogin:
        """How clients of this process log in.

        Raises:
            ConfigurationError: the password's file or that of the authorities cannot be used. No
                other password is tried in its place.
        """
        if self.kafka_ssl_ca:
            read_ca(self.kafka_ssl_ca)
        if not self.kafka_security_protocol.startswith("SASL_"):
            return KafkaLogin(self.kafka_security_protocol, ca=self.kafka_ssl_ca)
        return KafkaLogin(
            self.kafka_security_protocol,
            self.kafka_sasl_mechanism,
            self.kafka_sasl_username,
            self._password(),
            self.kafka_ssl_ca,
        )

    def _password(self) -> str:
        if self.kafka_sasl_password_file is not None:
            return read_secret(self.kafka_sasl_password_file, "HOLDFAST_KAFKA_SASL_PASSWORD_FILE")
        return self.kafka_sasl_password.get_secret_value() if self.kafka_sasl_password else ""
