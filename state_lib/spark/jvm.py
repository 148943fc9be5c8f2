"""Spark's JVM, started as an application is made: Python reads what a driver needs meanwhile.

PySpark starts the JVM when it makes its first session. But it also joins one that is there, which
is how ``spark-submit`` runs Python: by two variables. So does this, from the very same script.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from state_lib.stack.class_archive import spark_home

if TYPE_CHECKING:
    from state_lib.config import Settings

PORT, SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
TOLD = ("PYSPARK_SUBMIT_ARGS", "SPARK_TESTING")
"""By these PySpark starts another JVM than we would."""
LAUNCHER = "-Xshare:auto -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Of the JVM that only prints the command of the other one, and ends."""
WITHIN_S = 60.0
_LOOK_S = 0.02
_joined: list[Starting] = []
"""JVMs that PySpark uses: they outlive the object that started them."""


class Starting:
    """A JVM on its way. It ends when this process does; before it is joined, if this is dropped."""

    def __init__(self, home: Path, conf: Mapping[str, str]) -> None:
        self._joined = False
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-jvm-"))
        self._said = self._folder / "gateway"
        given = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
        self._process = subprocess.Popen(  # noqa: S603 - Spark's own script
            [str(home / "bin" / "spark-submit"), *given, "pyspark-shell"],
            stdin=subprocess.PIPE,  # the JVM ends at its end
            env={
                "SPARK_LAUNCHER_OPTS": LAUNCHER,
                **os.environ,
                "SPARK_CONNECT_MODE": "0",
                "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._said),
            },
            preexec_fn=_deaf,  # noqa: PLW1509 - as PySpark starts it
        )
        self._end = weakref.finalize(self, _end, self._process, self._folder)  # or at exit

    @property
    def pid(self) -> int:
        """The JVM's process id: Spark's scripts become it."""
        return self._process.pid

    def join(self) -> bool:
        """Wait until it answers, and let PySpark find it; False if it does not come up.

        PySpark then starts one of its own, and says what is wrong.
        """
        if self._joined:
            return True
        deadline = time.monotonic() + WITHIN_S
        while self._process.poll() is None and time.monotonic() < deadline:
            if self._said.exists():  # renamed to this name when it is complete
                said = self._said.read_bytes()
                length = int.from_bytes(said[4:8], "big")
                os.environ[PORT] = str(int.from_bytes(said[:4], "big"))
                os.environ[SECRET] = said[8 : 8 + length].decode()
                self._end.detach()
                _forget(self._folder)
                self._joined = True
                _joined.append(self)
                return True
            time.sleep(_LOOK_S)
        self.close()
        return False

    def close(self) -> None:
        """End it if nobody has joined it. Again: nothing."""
        self._end()


def start(app_id: str, settings: Settings) -> Starting | None:
    """Start the JVM; None if PySpark is to start it.

    That is if it runs already, if Spark is not found, and if a user has configured how PySpark
    starts it.
    """
    from state_lib.spark.properties import prepare_environment, properties  # noqa: PLC0415

    home = spark_home()
    if PORT in os.environ or home is None or not (home / "bin" / "spark-submit").is_file():
        return None
    if any(os.environ.get(name) for name in TOLD):
        return None
    prepare_environment(settings)
    return Starting(home, properties(app_id, settings))


def joined() -> None:
    """PySpark has joined it: Python programs that this one starts are to have JVMs of their own."""
    if _joined:
        os.environ.pop(PORT, None)
        os.environ.pop(SECRET, None)


def _end(process: subprocess.Popen[bytes], folder: Path) -> None:
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    process.kill()
    process.wait()
    _forget(folder)


def _forget(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _deaf() -> None:
    """As PySpark does: an interrupt from the terminal is for Python, which stops at an edge."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
