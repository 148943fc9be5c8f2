"""Holdfast's settings in an Airflow process: its environment, and what a DAG sets on top."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from state_lib.config import Settings

# Airflow's own variables name its database and its secrets: nothing for a job that runs for months.
AIRFLOWS = ("AIRFLOW", "_AIRFLOW", "__AIRFLOW", "HOLDFAST_AIRFLOW")


def settings_of(env: Mapping[str, str]) -> Settings:
    """Settings of this process, with the ``HOLDFAST_*`` variables of ``env`` on top.

    Raises:
        ConfigurationError: naming every wrong setting and the value seen.
    """
    from state_lib.config import PREFIX, Settings

    flags = {
        name.removeprefix(PREFIX).lower(): value
        for name, value in env.items()
        if name.startswith(PREFIX)
    }
    return Settings.load(**flags)


def environment_of(settings: Settings) -> dict[str, str]:
    """Variables of a job that is launched: this process' without Airflow's, and the settings."""
    given = {**os.environ, **settings.as_environment()}
    if settings.token_file is None:  # a token was set, and the worker's file would win
        given.pop("HOLDFAST_TOKEN_FILE", None)
    return {name: value for name, value in given.items() if not name.startswith(AIRFLOWS)}
