"""Does a service answer? Cheap questions with short time limits, never an exception."""

from __future__ import annotations

import socket
from typing import Any

CONNECT_TIMEOUT_S = 1.0
ANSWER_TIMEOUT_S = 3.0


def listening(host: str, port: int, timeout_s: float = CONNECT_TIMEOUT_S) -> bool:
    """Whether someone accepts connections there."""
    try:
        with socket.create_connection((host, port), timeout_s):
            return True
    except OSError:
        return False


def kafka(bootstrap: str) -> bool:
    """Whether a broker answers a metadata request with itself in it.

    The port is tried first: an AdminClient on a closed port costs threads and logs refusals.
    """
    host, _, port = bootstrap.partition(",")[0].rpartition(":")
    if not listening(host, int(port)):
        return False
    from confluent_kafka import KafkaException  # noqa: PLC0415 - `holdfast status` without Kafka
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415

    quiet: dict[str, Any] = {"error_cb": lambda _: None, "log_level": 0}
    admin = AdminClient({"bootstrap.servers": bootstrap, **quiet})
    try:
        return bool(admin.list_topics(timeout=ANSWER_TIMEOUT_S).brokers)
    except KafkaException:
        return False


def http_ready(host: str, port: int) -> bool:
    """Whether ``/readyz`` answers 200."""
    if not listening(host, port):
        return False
    import httpx  # noqa: PLC0415 - as above

    try:
        answer = httpx.get(
            f"http://{host}:{port}/readyz", timeout=ANSWER_TIMEOUT_S, trust_env=False
        )
    except httpx.HTTPError:
        return False
    return answer.status_code == httpx.codes.OK
