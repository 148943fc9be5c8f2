"""Does a service answer? Cheap questions with short time limits, never an exception."""

from __future__ import annotations

import socket
from datetime import datetime
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


def http_answers(host: str, port: int, path: str) -> bool:
    """Whether it answers 200."""
    if not listening(host, port):
        return False
    import httpx  # noqa: PLC0415 - as above

    try:
        answer = httpx.get(f"http://{host}:{port}{path}", timeout=ANSWER_TIMEOUT_S, trust_env=False)
    except httpx.HTTPError:
        return False
    return answer.status_code == httpx.codes.OK


def airflow(url: str, component: str | None, started: float) -> bool:
    """Whether Airflow's health report calls a component healthy; the api-server if None.

    Airflow calls a component healthy for half a minute after its last heartbeat, dead or not: so
    the heartbeat has to be this process' own.

    Args:
        url: Of the api-server, which is the one to report.
        component: ``scheduler``, ``dag_processor`` or ``triggerer``.
        started: When the component's process started, in s of Unix time, rounded down.
    """
    import httpx  # noqa: PLC0415 - as above

    try:
        with httpx.Client(base_url=url, timeout=ANSWER_TIMEOUT_S, trust_env=False) as client:
            report = client.get("/api/v2/monitor/health").raise_for_status().json()
            if component is None:
                # Airflow builds the API of its tasks at the first request: 4 s, in which nobody
                # gets an answer. Better now than when a task starts.
                client.get("/execution/health").raise_for_status()
                return bool(report["metadatabase"]["status"] == "healthy")
    except (httpx.HTTPError, ValueError):
        return False
    seen = report.get(component) or {}
    beat = seen.get(f"latest_{component}_heartbeat")
    if seen.get("status") != "healthy" or not beat:
        return False
    return datetime.fromisoformat(beat).timestamp() > started + 1
