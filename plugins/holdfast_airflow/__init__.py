"""Airflow's side of Holdfast, installed as ``holdfast_airflow``.

Laid out as Airflow's own providers: ``operators``, ``sensors``, ``triggers``, ``hooks``, ``links``,
``notifications``; ``dags`` makes whole DAGs, ``ui`` the pages.
"""

from __future__ import annotations

from holdfast_airflow.get_provider_info import get_provider_info

__all__ = ["get_provider_info"]
