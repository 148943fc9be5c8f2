"""Launched drivers as processes: tiny programs here, real Spark in tests/chaos/test_drivers.py."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from state_lib.drivers.process import DriverProcess, launch
from state_lib.errors import ConfigurationError, Unavailable
from tests.support.waiting import until

JOB = """
import signal, sys, time
def stop(*_):
    print("stopped at an edge", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
print("running", flush=True)
while True:
    time.sleep(0.1)
"""
STUBBORN = JOB.replace("    sys.exit(0)\n", "")
LAUNCHER = """
import json, os, sys, time
from pathlib import Path
from state_lib.drivers.process import launch
process = launch("app", sys.argv[2:], env=os.environ, log=Path(sys.argv[1]))
print(json.dumps(process.to_json()), flush=True)
time.sleep(600)
"""
SUBMIT = """
import signal, subprocess, sys
signal.signal(signal.SIGTERM, lambda *_: print("the JVM was hit", flush=True))
work = 'trap "echo its helper was hit" TERM; while :; do sleep 0.1; done'
helper = subprocess.Popen(["/bin/sh", "-c", work])
code = subprocess.run(sys.argv[1:]).returncode
helper.kill()
sys.exit(code)
"""


class Started:
    """Starts programs, and leaves none behind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "logs" / "driver.log"
        self.all: list[DriverProcess] = []

    def file(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def start(self, *command: str) -> DriverProcess:
        process = launch("app", command, env=os.environ, log=self.log)
        self.all.append(process)
        return process

    def said(self, text: str) -> bool:
        return self.log.is_file() and text in self.log.read_text()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    one = Started(tmp_path)
    yield one
    for process in one.all:
        process.end(0)


def test_it_lives_until_it_is_ended_at_an_edge(started: Started) -> None:
    process = started.start(sys.executable, started.file("job.py", JOB))
    until(lambda: started.said("running"), 60)
    assert process.alive()
    assert DriverProcess.from_json(json.loads(json.dumps(process.to_json()))).alive()
    process.end(60)
    assert process.alive() is False
    assert process.last_lines(1) == ["stopped at an edge"]
    process.end(60)


def test_it_outlives_its_launcher_and_is_found_again(started: Started) -> None:
    job = started.file("job.py", JOB)
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(started.log), sys.executable, job],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert launcher.stdout is not None
    process = DriverProcess.from_json(json.loads(launcher.stdout.readline()))
    started.all.append(process)
    until(lambda: started.said("running"), 60)
    os.killpg(launcher.pid, signal.SIGKILL)
    launcher.wait(60)
    launcher.stdout.close()
    time.sleep(0.3)
    assert process.alive()
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: process.alive() is False, 60)


def test_what_does_not_stop_is_killed(started: Started) -> None:
    process = started.start(sys.executable, started.file("job.py", STUBBORN))
    until(lambda: started.said("running"), 60)
    process.end(1)
    assert process.alive() is False
    assert started.said("stopped at an edge"), "it was asked first"


@pytest.mark.parametrize("interpreter", ["python", "jobs-own"])
def test_the_job_is_signalled_and_neither_the_jvm_above_it_nor_its_helpers(
    started: Started, interpreter: str
) -> None:
    java, python = started.folder / "java", started.folder / interpreter
    for link in (java, python):
        link.symlink_to(sys.executable)
    submit, job = started.file("submit.py", SUBMIT), started.file("job.py", JOB)
    process = started.start(str(java), submit, str(python), job)
    until(lambda: started.said("running"), 60)
    process.end(60)
    assert process.alive() is False
    assert started.said("stopped at an edge")
    assert not started.said("was hit")


def test_it_lives_while_any_of_its_processes_does(started: Started) -> None:
    job = started.file("job.py", JOB)
    process = started.start("/bin/sh", "-c", f"{sys.executable} {job} & exit 0")
    until(lambda: started.said("running"), 60)
    assert process.alive()
    process.end(60)
    assert started.said("stopped at an edge")


def test_one_that_has_ended_and_was_not_waited_for_is_not_alive(started: Started) -> None:
    process = started.start(sys.executable, "-c", "print('done')")
    until(lambda: process.alive() is False, 60)
    assert process.last_lines() == ["done"]


def test_it_is_not_taken_for_dead_while_it_becomes_another_program(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As spark-submit does: bash becomes another bash, which becomes java."""
    loop = started.file("loop.sh", 'i=$1; [ "$i" -gt 0 ] && exec /bin/sh "$0" $((i - 1)); sleep 1')
    process = started.start("/bin/sh", loop, "300")
    with monkeypatch.context() as patch:
        patch.setattr("state_lib.drivers.process._launched", {})  # as other processes see it
        assert all(process.alive() for _ in range(300))


def test_a_used_again_process_id_is_not_ours(started: Started) -> None:
    process = started.start(sys.executable, "-c", "print('done')")
    until(lambda: process.alive() is False, 60)
    taken = replace(process, pid=os.getpid())
    assert taken.alive() is False
    taken.end(5)  # and we live on


def test_on_another_machine_nothing_is_known_and_nothing_is_done(started: Started) -> None:
    process = started.start(sys.executable, started.file("job.py", JOB))
    elsewhere = replace(process, host="elsewhere")
    assert elsewhere.alive() is None
    assert elsewhere.last_lines() == []
    elsewhere.end(0)
    assert process.alive()


def test_what_does_not_exist_is_named(started: Started) -> None:
    with pytest.raises(ConfigurationError, match="'/no/such/spark-submit': No such file"):
        started.start("/no/such/spark-submit", "x")
    with pytest.raises(ConfigurationError, match=r"job file 'absent\.py' does not exist"):
        started.start(sys.executable, "absent.py")
    assert started.all == []


def test_a_machine_that_cannot_start_it_now_may_be_asked_again(started: Started) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(Unavailable, match=r"'app' cannot start now: .*Too many open files"):
            started.start(sys.executable, "-c", "print('done')")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    started.log.parent.rmdir()
    started.log.parent.touch()
    with pytest.raises(ConfigurationError, match=r"cannot start: .*logs"):
        started.start(sys.executable, "-c", "print('done')")
