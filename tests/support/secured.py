"""A broker as others run theirs: TLS with a certificate of its own, SCRAM, and an authorizer.

Beside the listener ``SASL_SSL`` there is the plain one, whose anonymous callers are super users:
the brokers' own traffic, and the door through which a test creates principals and grants rights.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from state_lib.acls import Right
from state_lib.kafka import Kafka
from state_lib.stack.broker import LocalBroker
from state_lib.stack.ports import free_port
from tests.support.waiting import until

MECHANISM: Final = "SCRAM-SHA-512"
WAIT_S = 60
KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
}


@dataclass(frozen=True)
class Secured:
    """A running broker, where clients log in, and the authority that they are to trust."""

    broker: LocalBroker
    servers: str
    ca: Path
    plain: Kafka
    """The connection of a super user."""

    def user(self, name: str, password: str) -> None:
        """Create a principal, or give it another password."""
        upsert = UserScramCredentialUpsertion(
            name, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), password.encode()
        )
        for future in self.plain.admin().alter_user_scram_credentials([upsert]).values():
            future.result(WAIT_S)

    def grant(self, user: str, rights: Iterable[Right]) -> None:
        """Grant, and wait until the broker's authorizer knows."""
        bindings = [b for right in rights for b in bindings_of(user, right)]
        for future in self.plain.admin().create_acls(bindings).values():
            future.result(WAIT_S)
        missing = {str(b) for b in bindings}
        until(lambda: missing <= self._granted(user), WAIT_S)

    def _granted(self, user: str) -> set[str]:
        unset: Any = None  # typed as str, and meant to be None for any
        anything = AclBindingFilter(
            ResourceType.ANY,
            unset,
            ResourcePatternType.ANY,
            f"User:{user}",
            unset,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        return {str(b) for b in self.plain.admin().describe_acls(anything).result(WAIT_S)}


def bindings_of(user: str, right: Right) -> list[AclBinding]:
    """One binding per operation."""
    return [
        AclBinding(
            KINDS[right.kind],
            right.name,
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation[operation],
            AclPermissionType.ALLOW,
        )
        for operation in right.operations
    ]


@contextmanager
def secured_broker(directory: Path) -> Iterator[Secured]:
    """One broker; ends with the block."""
    directory.mkdir(parents=True)
    port, ca = free_port(), directory / "ca.pem"
    certificates(directory, ca)
    listener = "listener.name.sasl_ssl"
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    extra = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        f"{listener}.ssl.keystore.type": "PEM",
        f"{listener}.ssl.keystore.location": str(directory / "server.pem"),
        f"{listener}.sasl.enabled.mechanisms": MECHANISM,
        f"{listener}.{MECHANISM.lower()}.sasl.jaas.config": login,
    }
    listeners = {"SASL_SSL": port}
    with LocalBroker(directory / "broker", listeners=listeners, extra=extra) as broker:
        plain = Kafka({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        yield Secured(broker, f"127.0.0.1:{port}", ca, plain)


def certificates(directory: Path, ca: Path) -> None:
    """Write an authority's certificate to ``ca``, and ``server.pem``: key, then certificate."""
    issuer_key, issuer = _certificate("an authority", None)
    ca.write_bytes(issuer.public_bytes(serialization.Encoding.PEM))
    key, certificate = _certificate("a broker", (issuer_key, issuer))
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    chain = certificate.public_bytes(serialization.Encoding.PEM)
    (directory / "server.pem").write_bytes(private + chain)


def _certificate(
    name: str, issuer: tuple[ec.EllipticCurvePrivateKey, x509.Certificate] | None
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """Of an authority, or of a server on loopback that ``issuer`` vouches for; for a day."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now, day = dt.datetime.now(dt.UTC), dt.timedelta(days=1)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[1].subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
    )
    return key, builder.sign(issuer[0] if issuer else key, hashes.SHA256())
