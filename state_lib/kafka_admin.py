"""An admin client that names whom it speaks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from state_lib.kafka_door import Door


class Admin(AdminClient):
    """Knows the door that it knocks at, and which groups it was let see."""

    def __init__(self, properties: Mapping[str, Any], door: Door) -> None:
        own: dict[str, Any] = {"error_cb": door.hear}
        super().__init__(own | dict(properties))
        self.door = door
        self.visible: set[str] = set()
        """Groups that this principal may see."""

    def members(self, group: str, timeout_s: float) -> list[str]:
        """Client ids of a group's members; none of a group that is not there or hidden from us.

        Raises:
            KafkaException: a broker did not answer.
        """
        found = self.list_groups(group, timeout=timeout_s)
        for one in found:
            if one.error is not None:
                raise KafkaException(one.error)
        return [str(member.client_id) for one in found for member in one.members]
