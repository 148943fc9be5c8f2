"""A state host that has no task, asks no broker and listens nowhere: to be described."""

from __future__ import annotations

from pathlib import Path

from state_lib.changelog.log import KafkaLog
from state_lib.host.metrics import HostMetrics
from state_lib.host.tasks import TaskManager
from state_lib.kafka import Kafka
from state_lib.task import TaskContext


def host_of_nobody() -> tuple[TaskManager, HostMetrics]:
    """Its tasks and what it counts."""
    context = TaskContext(
        KafkaLog(Kafka({"bootstrap.servers": "127.0.0.1:1"})), "host-1", Path.cwd()
    )
    tasks, metrics = TaskManager(context, [], 60.0), HostMetrics()
    metrics.watch(tasks)
    return tasks, metrics
