"""Runs an application on Spark: claim, align, stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from state_lib.declaration import Declaration
    from state_lib.spark.opened import Opened


def run(app: Declaration, opened: Opened) -> None:
    """Run an application's driver with the settings of this process, until it is stopped.

    Raises:
        ConfigurationError: a setting is wrong, or a file that it names cannot be read.
    """
    from state_lib.spark.running import main  # noqa: PLC0415 - heavy, and only for a running job

    try:
        main(app, opened.settings, opened)
    finally:
        opened.close()
