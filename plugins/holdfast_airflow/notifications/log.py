"""Alarms in the task's log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier

if TYPE_CHECKING:
    from airflow.sdk import Context


class LogNotifier(BaseNotifier):
    """Writes ``incident.text`` into the task's log: where nobody is told otherwise."""

    def notify(self, context: Context) -> None:
        """Alarms as errors, their ends as information."""
        incident: dict[str, Any] = context["incident"]  # type: ignore[typeddict-item]
        tell = self.log.error if incident["kind"] == "alarm" else self.log.info
        tell("%s: %s", incident["kind"], incident["text"])
