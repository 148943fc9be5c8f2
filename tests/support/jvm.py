"""Options for the JVMs of drivers in tests."""

from __future__ import annotations

import tempfile

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Starts fast."""


def options(*more: str) -> str:
    """With temporary files where Python has them: a JVM takes /tmp, whatever TMPDIR says."""
    return " ".join([*more, f"-Djava.io.tmpdir={tempfile.gettempdir()}"])
