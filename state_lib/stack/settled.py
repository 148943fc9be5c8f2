"""Settings that follow from what a stack consists of."""

from __future__ import annotations

from state_lib.config import Settings


def settled(settings: Settings) -> Settings:
    """With Airflow, hosts leave a lost store to its restore DAG, unless somebody says otherwise.

    Without Airflow they restore by themselves, which is the default.
    """
    if not settings.airflow or "restore_mode" in settings.model_fields_set:
        return settings
    return settings.model_copy(update={"restore_mode": "orchestrated"})
