"""What Airflow's api-server gets from Holdfast; found by the entry point ``airflow.plugins``.

(Plugins that a provider lists are loaded only where providers are not loaded lazily.)
"""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from holdfast_airflow.links import URL_PREFIX


class HoldfastPlugin(AirflowPlugin):
    """Pages about streams. Every process of Airflow loads this class, so it imports little."""

    name = "holdfast"

    @property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The pages; made when the api-server asks for them, which alone has the security."""
        from holdfast_airflow.ui.app import app  # noqa: PLC0415

        return [{"app": app, "url_prefix": URL_PREFIX, "name": "Holdfast"}]
