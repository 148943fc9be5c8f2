"""How to log in to brokers: one set of settings, in librdkafka's words and in Java's.

The same login serves hosts, loaders and tools (librdkafka) and Spark's Kafka source (Java). The
password is never part of a command line or a ``repr``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from state_lib.errors import ConfigurationError

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
_PEM = "-----BEGIN CERTIFICATE-----"
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


@dataclass(frozen=True)
class KafkaLogin:
    """What a client needs to be let in.

    Attributes:
        protocol: Kafka's ``security.protocol``.
        mechanism: Kafka's ``sasl.mechanism``; None without SASL.
        username: None without SASL.
        password: None without SASL.
        ca: PEM file of the authorities that may sign brokers' certificates; None: the system's
            for librdkafka, the JVM's for Spark.
    """

    protocol: Protocol = "PLAINTEXT"
    mechanism: Mechanism | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: Path | None = None

    @property
    def principal(self) -> str:
        """As brokers call who logs in, unless they map names otherwise."""
        return f"User:{self.username or 'ANONYMOUS'}"

    def librdkafka(self) -> dict[str, str]:
        """Properties for clients of librdkafka."""
        found = {
            "security.protocol": self.protocol,
            "sasl.mechanism": self.mechanism,
            "sasl.username": self.username,
            "sasl.password": self.password,
            "ssl.ca.location": self.ca and str(self.ca),
        }
        return {key: value for key, value in found.items() if value}

    def java(self) -> dict[str, str]:
        """Properties for Java clients. The authorities are text: executors need no file."""
        found: dict[str, str] = {"security.protocol": self.protocol}
        if self.mechanism:
            user, password = _quoted(self.username or ""), _quoted(self.password or "")
            module = _MODULES[self.mechanism]
            found["sasl.mechanism"] = self.mechanism
            found["sasl.jaas.config"] = f"{module} required username={user} password={password};"
        if self.ca:
            found["ssl.truststore.type"] = "PEM"
            found["ssl.truststore.certificates"] = read_ca(self.ca)
        return found


def read_secret(path: Path, setting: str) -> str:
    """The only line of a file that holds a secret.

    Raises:
        ConfigurationError: it is missing, unreadable, empty, or of several lines.
    """
    try:
        secret = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        message = (
            f"cannot read {setting} {path}: {why}. "
            "Create it with the secret inside, or unset the variable."
        )
        raise ConfigurationError(message, path=str(path)) from error
    if not secret or len(secret.splitlines()) > 1:
        seen = "has several lines" if secret else "is empty"
        message = f"{setting} {path} {seen}. Put the secret into it, on one line."
        raise ConfigurationError(message, path=str(path))
    return secret


def read_ca(path: Path, setting: str = "HOLDFAST_KAFKA_SSL_CA") -> str:
    """The PEM text of authorities.

    Raises:
        ConfigurationError: the file cannot be read, or holds no certificate.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        message = (
            f"cannot read {setting} {path}: {why}. It must be a PEM file with the certificates of "
            "the authorities that sign the servers'."
        )
        raise ConfigurationError(message, path=str(path)) from error
    if _PEM not in text:
        message = (
            f"{setting} {path} holds no {_PEM!r}: it must be PEM. Turn a Java keystore into PEM "
            "with 'keytool -exportcert -rfc'."
        )
        raise ConfigurationError(message, path=str(path))
    return text


def _quoted(text: str) -> str:
    """As JAAS reads it: in quotes, with backslashes before what would end them."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
