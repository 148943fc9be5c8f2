"""What brokers say to those whom they do not let in, or not do what they ask: one clear error.

librdkafka tries a failed log-in again and again and meanwhile lets every call time out; the reason
only comes to the client's error callback. `Door` keeps it, so that the time-out can be explained.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Protocol

from confluent_kafka import KafkaError, KafkaException

from state_lib.errors import HoldfastError, KafkaRefused, Unavailable
from state_lib.kafka_login import KafkaLogin

_LOGIN, _TLS = "_AUTHENTICATION", "_SSL"
_FORBIDDEN = "_AUTHORIZATION_FAILED"
_REMEMBER_S = 60.0
ENOUGH = 3
"""Refusals in a row that mean it: a broker that goes down closes connections in mid-handshake."""
_MOST_WORDS = 200


def is_forbidden(error: KafkaError) -> bool:
    """Whether the authorizer said no."""
    return error.name().endswith(_FORBIDDEN)


class _Polled(Protocol):
    """A client whose callbacks are called by `poll`."""

    def poll(self, timeout: float, /) -> object: ...


@dataclass
class Door:
    """Who knocks, where, and why it was not let in last time.

    Attributes:
        servers: the bootstrap servers.
        login: how all clients behind this door log in.
    """

    servers: str
    login: KafkaLogin
    _heard: list[tuple[float, KafkaError]] = field(default_factory=list, repr=False)

    def hear(self, error: KafkaError) -> None:
        """Count refusals (``error_cb`` of all clients); the rest passes by itself."""
        if error.name() in (_LOGIN, _TLS):
            self._heard.append((time.monotonic(), error))

    def welcome(self) -> None:
        """Forget refusals: a client was answered."""
        self._heard.clear()

    @property
    def refused(self) -> KafkaError | None:
        """Why nobody is let in, if that is so."""
        earliest = time.monotonic() - _REMEMBER_S
        self._heard = [one for one in self._heard if one[0] > earliest]
        return self._heard[-1][1] if len(self._heard) >= ENOUGH else None

    def error(
        self, what: str, failure: KafkaException | KafkaError, client: _Polled | None = None
    ) -> HoldfastError:
        """Why Kafka did not do something.

        Args:
            what: what it did not, with the resource: ``read topic 'flights'``.
            failure: what the client said.
            client: whose callbacks are waiting to be called, if any are.

        Returns:
            A `KafkaRefused` if brokers did not let the principal in or forbid it to do that, else
            an `Unavailable`: worth another try.
        """
        cause = failure.args[0] if isinstance(failure, KafkaException) else failure
        if is_forbidden(cause):
            return self._forbidden(what, cause)
        if client is not None:
            client.poll(0)
        if self.refused is not None:
            return self.shut(self.refused)
        return Unavailable(
            f"Kafka at {self.servers} did not {what} (over {self.login.protocol}): {cause.str()}. "
            "Look at the broker's log if this goes on",
            kafka_error=cause.name(),
        )

    def _forbidden(self, what: str, cause: KafkaError) -> KafkaRefused:
        who = self.login.principal
        return KafkaRefused(
            f"{who} may not {what} ({cause.name()}). Grant it: "
            f"'holdfast acls APP --principal {who}' prints what each role needs",
            principal=who,
            resource=what,
            kafka_error=cause.name(),
        )

    def shut(self, cause: KafkaError) -> KafkaRefused:
        """Nobody is let in, because of this."""
        login, said = self.login, cause.str()[:_MOST_WORDS]
        if cause.name() == _TLS:
            trusted = (
                f"HOLDFAST_KAFKA_SSL_CA={login.ca}" if login.ca else "the system's authorities"
            )
            hint = (
                f"Trusted are {trusted}. Put the certificate of the authority that signed the "
                "brokers' there, in PEM, and connect by a name that is in their certificates"
            )
        else:
            hint = (
                "Correct HOLDFAST_KAFKA_SASL_USERNAME and its password, and look whether the "
                f"brokers know the user for {login.mechanism}: kafka-configs --describe "
                "--entity-type users"
            )
        return KafkaRefused(
            f"Kafka at {self.servers} did not let {login.principal} in: {said}. {hint}",
            principal=login.principal,
            resource=self.servers,
            kafka_error=cause.name(),
        )
