"""An admin client that names whom it speaks for, and whose end holds up nobody."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from state_lib.kafka_door import Door

_ONLY_THE_LIST = 2  # and the argument of getrefcount


class Admin(AdminClient):
    """Freed by a thread of its own.

    After `describe_consumer_groups` has timed out and the broker came back, librdkafka never gets
    to the end of freeing a client (2.16) [tried]: a supervisor would stand still for ever, and a
    command would not end.
    """

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

    def __del__(self) -> None:
        """Come to life again in a thread that then drops the last reference."""
        if sys.is_finalizing():  # the end of the process frees it
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
            return
        threading.Thread(target=_bury, args=([self],), name="bury", daemon=True).start()


def _bury(last: list[Admin]) -> None:
    while sys.getrefcount(last[0]) > _ONLY_THE_LIST:
        time.sleep(0.01)  # whoever dropped it is still about to
    last.clear()
