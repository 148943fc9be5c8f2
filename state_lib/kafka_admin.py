"""An admin client that names whom it speaks for."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from state_lib.kafka_door import Door

_AGAIN_S = 0.1
_LOST_S = 10.0
"""A client that nobody has answered for so long may not know any broker any more."""
_SILENCE = ("_NOENT", "_TRANSPORT", "_TIMED_OUT")


class Admin(AdminClient):
    """Knows the door that it knocks at, and which groups it was let see."""

    def __init__(self, properties: Mapping[str, Any], door: Door) -> None:
        own: dict[str, Any] = {"error_cb": door.hear}
        super().__init__(own | dict(properties))
        self.door = door
        self.visible: set[str] = set()
        """Groups that this principal may see."""
        self._failing: float | None = None

    def answered(self) -> None:
        """A broker has answered."""
        self._failing = None

    def failed(self, cause: KafkaError) -> None:
        """Nobody has answered, if that is the cause."""
        if cause.name() in _SILENCE and self._failing is None:
            self._failing = time.monotonic()

    @property
    def lost(self) -> bool:
        """Whether another client should be asked.

        librdkafka drops brokers that are not in the metadata. Of a single broker that has just been
        fenced, after it stood still, none are; librdkafka 2.16 may then never look for one again
        (its issue 5301) [tried].
        """
        return self._failing is not None and time.monotonic() - self._failing > _LOST_S

    def members(self, group: str, timeout_s: float) -> list[str]:
        """Client ids of a group's members; none of a group that is not there or hidden from us.

        A broker that has just become coordinator, at its start or by its first group, has to load
        its groups first: it is waited for.

        Raises:
            KafkaException: a broker did not answer.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return self._members(group, timeout_s)
            except KafkaException as error:
                loading = error.args[0].code() == KafkaError.COORDINATOR_LOAD_IN_PROGRESS
                if not loading or time.monotonic() > deadline:
                    raise
            time.sleep(_AGAIN_S)

    def _members(self, group: str, timeout_s: float) -> list[str]:
        found = self.list_groups(group, timeout=timeout_s)
        for one in found:
            if one.error is not None:
                raise KafkaException(one.error)
        self.answered()
        return [str(member.client_id) for one in found for member in one.members]
