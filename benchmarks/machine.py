"""Facts of the machine and of what ran on it: a figure without them says nothing."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psutil

from state_lib.stack.jars import read_lock
from state_lib.stack.java import java_binary


class Stolen:
    """Time that other machines took of this one's cores, from now on.

    A hypervisor gives it to them without a word, and whatever ran here stood still meanwhile.
    """

    def __init__(self) -> None:
        self._before = psutil.cpu_times()

    def percent(self) -> float:
        """Of all time of all cores so far; 0 where nothing tells it."""
        now = psutil.cpu_times()
        passed = sum(now) - sum(self._before)
        stolen = getattr(now, "steal", 0.0) - getattr(self._before, "steal", 0.0)
        return 100 * stolen / passed if passed else 0.0


def facts() -> dict[str, str]:
    """In the order in which to show them."""
    pinned = {(jar.set, jar.artifact): jar.version for jar in read_lock()}
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": f"{len(os.sched_getaffinity(0))} cores of {_processor()}",
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "Java": _java(),
        "Python": platform.python_version(),
        "Spark": version("pyspark"),
        "broker": f"Kafka {pinned['kafka', 'kafka_2.13']}, one",
        "Kafka Streams": pinned["streams", "kafka-streams"],
        "rocksdict": version("rocksdict"),
        "commit": _commit(),
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _java() -> str:
    asked = subprocess.run([java_binary(), "-version"], capture_output=True, text=True, check=True)
    return asked.stderr.split('"')[1]


def _commit() -> str:
    """Of what runs; ``-dirty`` with changes of anything but the results that are written."""
    commit = _git("describe", "--always")
    changed = _git("diff", "--name-only", "HEAD", "--", ":/", ":!README.md")
    return f"{commit}-dirty" if changed else commit or "unknown"


def _git(*arguments: str) -> str:
    here = Path(__file__).parent
    asked = subprocess.run(
        ["git", *arguments],  # noqa: S607 - whatever git the user has
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip()
