"""Has the class archive made where it is missing: ``make setup`` waits for it, ``up`` does not."""

from __future__ import annotations

import os
import subprocess
import sys

from state_lib.config import Settings
from state_lib.errors import HoldfastError
from state_lib.stack import class_archive, jars, java
from state_lib.stack.paths import Paths
from state_lib.stack.record import VARIABLE, Record

COMMAND = (sys.executable, "-m", "state_lib.spark.training")


def is_missing(settings: Settings) -> bool:
    """Whether drivers here could start faster, and to make it was not tried in vain.

    Never raises, as nothing depends on it; never downloads, as somebody waits.
    """
    if class_archive.chosen(settings.driver_java_options):
        return False
    if not class_archive.is_usable(class_archive.folder()):
        return False
    try:
        home, spark = java.java_home(), jars.expected("spark", directory=settings.jars_dir)
        in_vain = class_archive.failed(home, spark).exists()
        return not in_vain and class_archive.find(home, spark) is None
    except (HoldfastError, OSError):
        return False  # reported by what needs jars or Java


def make() -> str | None:
    """Make it, which takes a minute; returns what went wrong.

    An interrupt waits until nothing of it is left.
    """
    making = subprocess.Popen(  # noqa: S603 - ours
        COMMAND, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        _, said = making.communicate()
    except KeyboardInterrupt:
        making.terminate()
        making.wait()
        raise
    return said.strip() or None if making.returncode else None


def make_beside(settings: Settings) -> None:
    """Begin to make it, for a stack that runs: `Stack.down` ends it as all that has its mark."""
    paths = Paths(settings.home)
    current = Record.read(paths.record)
    mark = {} if current is None else {VARIABLE: current.id}
    with paths.log("class-archive").open("wb") as log:
        subprocess.Popen(  # noqa: S603 - ours
            COMMAND,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **settings.as_environment(), **mark},
            start_new_session=True,
        )
