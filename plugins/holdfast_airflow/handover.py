"""The stop that is asked for because of what a user did to a supervising task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast_airflow.settings import settings_of

WHY = "its supervising task was cleared or marked by a user"


def ask_for_handover(app: str, env: Mapping[str, str], ti: Any) -> None:
    """Ask an application's driver to stop at a batch's edge, for a task (None: unknown).

    Raises:
        NotFound: the application has never run on these brokers.
        Unavailable: the brokers did not take the request.
    """
    from state_lib.drivers.control import ask_to_stop
    from state_lib.kafka import Kafka

    who = "" if ti is None else f" ({ti.dag_id}, {ti.run_id}, {ti.task_id}, try {ti.try_number})"
    ask_to_stop(Kafka.of(settings_of(env)), app, why=f"{WHY}{who}", handover=True)
