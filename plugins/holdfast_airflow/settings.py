"""Holdfast's settings in an Airflow process: its environment, and what a DAG sets on top."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from state_lib.config import Settings


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
