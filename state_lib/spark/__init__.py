"""Runs an application on Spark: claim, align, stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from state_lib.application import Application


def run(app: Application) -> None:
    """Run an application's driver with the settings of this process, until it is stopped.

    Raises:
        ConfigurationError: a setting is wrong, or a file that it names cannot be read.
    """
    from state_lib.config import Settings  # noqa: PLC0415 - heavy, and only for a running job
    from state_lib.errors import HoldfastError  # noqa: PLC0415
    from state_lib.spark import jvm  # noqa: PLC0415

    settings = Settings.load()
    try:
        starting = jvm.start(app.id, settings)
    except HoldfastError:
        starting = None  # the driver meets it as well, and has the words and exit codes for it
    from state_lib.spark.driver import main  # noqa: PLC0415 - a second, beside the JVM's

    try:
        main(app, settings, starting)
    finally:
        if starting is not None:
            starting.close()
