"""Notifications: alarms, once per incident, and their ends."""

from holdfast_airflow.notifications.incident import IncidentNotifier
from holdfast_airflow.notifications.log import LogNotifier

__all__ = ["IncidentNotifier", "LogNotifier"]
