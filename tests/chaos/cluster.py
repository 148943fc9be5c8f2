"""A real stack to break: supervised broker and hosts, drivers that tests start and kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from state_lib.apps.past import carry_out, plan
from state_lib.config import Settings
from state_lib.drivers.process import DriverProcess, launch
from state_lib.errors import StorageUnavailable, Unavailable
from state_lib.stack import Stack
from state_lib.stack.java import java_home
from state_lib.stack.ports import free_port
from state_lib.submit import submit_conf
from tests.support import jvm
from tests.support.waiting import SLOWNESS, deadline_in, until

JOB = Path(__file__).with_name("job.py")


class Cluster:
    """The stack of one test module, in a folder of its own, with failpoints that can be armed."""

    def __init__(self, home: Path, **flags: Any) -> None:
        self.armed = home / "failpoints"
        self.fired = home / "fired"
        self.fired.mkdir(parents=True)
        os.environ["HOLDFAST_FAILPOINTS"] = f"@{self.armed}"
        os.environ["HOLDFAST_FAILPOINTS_DIR"] = str(self.fired)
        hosts = ",".join(f"host-{i}=127.0.0.1:{free_port()}/{free_port()}" for i in (1, 2))
        given: dict[str, Any] = {
            "home": home / "stack",
            "hosts": hosts,
            "kafka_port": free_port(),
            "kafka_controller_port": free_port(),
            "kafka_heap": "512m",
            "spark_ui_port": free_port(),
            "driver_java_options": jvm.options(jvm.QUICK),
            "first_offsets_per_trigger": 500,
            "max_offsets_per_trigger": 2000,
            "batch_target_s": 60.0,
            "flush_interval_s": 5.0,
            "token": "chaos",
            "airflow": False,
        }
        self.settings = Settings.load(**{**given, **flags})
        self.drivers: list[Driver] = []
        self.stack = Stack(self.settings)

    def pid(self, service: str) -> int:
        """Process id of a supervised service, waiting until it runs."""
        return until(lambda: self.stack.status()[service].pid, 30, f"{service} running")

    def kill(self, service: str) -> None:
        """SIGKILL a supervised service; the supervisor starts it again."""
        os.kill(self.pid(service), signal.SIGKILL)

    def arm(self, points: str) -> None:
        """Arm failpoints, such as ``commit.after_kafka=kill``; each acts once."""
        for old in self.fired.iterdir():
            old.unlink()
        self.armed.write_text(points)

    def disarm(self) -> None:
        """No failpoint acts any more."""
        self.armed.unlink(missing_ok=True)

    def wait_fired(self, point: str, timeout_s: float = 90) -> None:
        """Wait until an armed point has acted."""
        until((self.fired / point).exists, timeout_s, f"failpoint {point} reached")

    def driver(self, app: str, topic: str, key: str = "k", job: Path = JOB, **flags: Any) -> Driver:
        """Start a driver of the chaos job, or of one that was edited to group by another key."""
        environment = self._environment(app, topic, **flags) | {"CHAOS_KEY": key}
        log = self.settings.home / f"{app}-{time.time_ns()}.log"
        self.drivers.append(Driver(environment, log, job))
        return self.drivers[-1]

    def end_drivers(self) -> None:
        """Those that a failed test left: the next one must not share the machine with them."""
        for driver in self.drivers:
            if driver.process.poll() is None:
                driver.kill()
        self.drivers.clear()

    def submit(self, app: str, topic: str, job: Path = JOB, **flags: Any) -> DriverProcess:
        """Launch a chaos job through spark-submit, as a supervisor does."""
        confs = [f"--conf={key}={value}" for key, value in submit_conf(self.settings).items()]
        program = str(Path(sys.executable).with_name("spark-submit"))
        master = f"--master={self.settings.spark_master}"
        return launch(
            app,
            [program, master, *confs, str(job)],
            env=self._environment(app, topic, **flags) | {"JAVA_HOME": str(java_home())},
            log=self.settings.home / f"{app}.log",
        )

    def go_back(self, app: str, to: str) -> None:
        """Restore an application to a snapshot, again and again while hosts die."""
        deadline = deadline_in(120)
        while True:
            try:
                carry_out(self.settings, plan(self.settings, app, to))
            except StorageUnavailable:
                raise
            except Unavailable:
                assert time.monotonic() < deadline
                time.sleep(0.5)
            else:
                return

    def _environment(self, app: str, topic: str, **flags: Any) -> dict[str, str]:
        settings = self.settings.model_copy(update=flags)
        names = {"CHAOS_APP": app, "CHAOS_TOPIC": topic}
        return {**os.environ, **settings.as_environment(), **names}


class Driver:
    """A driver process with its JVM and workers."""

    def __init__(self, environment: dict[str, str], log: Path, job: Path) -> None:
        self.log = log
        with log.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, str(job)],
                env=environment,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def events(self, name: str) -> int:
        """How many log lines carry an event of that name."""
        return self.log.read_text(errors="replace").count(f'"event": "{name}"')

    def wait_event(self, name: str, count: int = 1, timeout_s: float = 120) -> None:
        """Wait for a log line."""
        deadline = deadline_in(timeout_s)
        while self.events(name) < count:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(
                    f"no event {name!r}; log ends:\n{self.log.read_text()[-3000:]}"
                )
            time.sleep(0.1)

    def kill(self) -> None:
        """SIGKILL the Python driver; its JVM must end by itself (no process may stay)."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        self.process.kill()
        self.process.wait()
        _, alive = psutil.wait_procs(children, timeout=20 * SLOWNESS)
        assert not alive, f"left behind by a killed driver: {alive}"

    def stop(self, timeout_s: float = 90) -> int:
        """Ask it to stop at a batch's edge; returns its exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.wait(timeout_s)

    def wait(self, timeout_s: float = 90) -> int:
        """Wait for its end; kills it, JVM and workers included, if it takes longer."""
        try:
            return self.process.wait(timeout_s * SLOWNESS)
        except subprocess.TimeoutExpired:
            for child in psutil.Process(self.process.pid).children(recursive=True):
                child.kill()
            self.process.kill()
            raise
