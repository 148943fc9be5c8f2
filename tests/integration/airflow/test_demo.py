"""`holdfast demo`, whole: with Airflow killed in its middle, and once more."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from state_lib.config import Settings
from state_lib.stack import Stack
from state_lib.stack.ports import free_port
from state_lib.stack.record import Record
from tests.support import jvm
from tests.support.waiting import SLOWNESS, until

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[3]
WITHIN_S = 540
RESTORED_S = 60
"""A lost store, from sensed to verified."""
MOST_GIB = 8.0
"""Of all processes of the stack, drivers included; what they share counts in each."""


def test_airflow_is_killed_in_the_middle_and_the_demo_run_again(tmp_path: Path) -> None:
    ports = ("kafka_port", "kafka_controller_port", "airflow_port", "spark_ui_port")
    settings = Settings.load(
        home=tmp_path / "home",
        hosts=",".join(f"host-{i}=127.0.0.1:{free_port()}/{free_port()}" for i in (1, 2)),
        jobs_dir=ROOT / "jobs",
        dags_dir=ROOT / "dags",
        driver_memory="768m",
        restore_mode="orchestrated",
        driver_java_options=jvm.options(jvm.QUICK),
        **{name: free_port() for name in ports},
    )
    stack = Stack(settings)
    memory = Memory(stack)
    try:
        first = Demo(settings, tmp_path / "first")
        until(lambda: "3 of 6" in first.said(), WITHIN_S)
        status = stack.status()
        for name in ("airflow-api-server", "airflow-scheduler"):
            os.kill(status[name].pid or 0, signal.SIGKILL)
        assert first.wait() == 0, first.said()
        assert "equal in every entry" in first.said()
        assert "Airflow does not answer" in first.said()
        assert "Airflow is back" in first.said()
        assert "restored by its host" in first.said()
        found = re.search(r"([\d.]+) s from sensed to verified", first.said())
        assert found is not None, first.said()
        assert float(found[1]) < RESTORED_S * SLOWNESS
        drivers = claims(settings)

        second = Demo(settings, tmp_path / "second")
        assert second.wait() == 0, second.said()
        assert "flights_stream: runs already" in second.said()
        assert claims(settings) == drivers == 1
        record = Record.read(stack.paths.record)
        most = memory.most_gib()
    finally:
        stack.down()
    assert record is not None
    assert most < MOST_GIB, f"{most:.1f} GiB resident"
    assert record.processes() == []


class Memory:
    """How much the stack's processes have resident, looked at all the time."""

    def __init__(self, stack: Stack) -> None:
        self._stack, self._most, self._ended = stack, 0, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def most_gib(self) -> float:
        """The most so far; looks no more."""
        self._ended.set()
        self._thread.join()
        assert self._most, "no process was seen"
        return self._most / (1 << 30)

    def _run(self) -> None:
        while not self._ended.wait(1):
            record = Record.read(self._stack.paths.record)
            now = 0
            for process in record.processes() if record is not None else ():
                with contextlib.suppress(psutil.Error):
                    now += process.memory_info().rss
            self._most = max(self._most, now)


class Demo:
    """The command in a process of its own."""

    def __init__(self, settings: Settings, log: Path) -> None:
        self._log = log
        with log.open("w") as out:
            self._process = subprocess.Popen(
                [Path(sys.executable).with_name("holdfast"), "demo", "--limit", "20000"],
                cwd=ROOT,
                env={**os.environ, **settings.as_environment(), "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def said(self) -> str:
        return self._log.read_text()

    def wait(self) -> int:
        try:
            return self._process.wait(WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


def claims(settings: Settings) -> int:
    """How often a driver was started, by its own word."""
    log = Stack(settings).paths.log("flights").read_text()
    return log.count('"event": "claimed"')
