"""Drivers that are followed by their processes on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from state_lib import processes
from state_lib.config import Settings
from state_lib.drivers.here import Here
from state_lib.drivers.identity import ID_VARIABLE
from state_lib.drivers.process import DriverProcess, launch
from state_lib.drivers.sight import Ended, Sight
from state_lib.stack.paths import Paths
from tests.support.waiting import until

NOTHING = Sight(at=0)


class Machine:
    """Drivers that sleep; how often all processes were looked through."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        settings = Settings.load(home=home)
        self._log = Paths(settings.home).log("app")
        self.here, self.searches, self.drivers = Here(settings, "app"), 0, list[DriverProcess]()
        every = psutil.process_iter

        def counted() -> Iterator[psutil.Process]:
            self.searches += 1
            return every()

        monkeypatch.setattr(psutil, "process_iter", counted)

    def start(self) -> DriverProcess:
        made = launch("app", ["/bin/sleep", "60"], env=os.environ, log=self._log)
        self.drivers.append(made)
        # While a process becomes another program it has no environment.
        until(lambda: processes.carries(psutil.Process(made.pid), ID_VARIABLE, made.id))
        return made


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    made = Machine(tmp_path, monkeypatch)
    yield made
    for driver in made.drivers:
        driver.end(0)


def test_a_driver_is_searched_for_once_and_followed(machine: Machine) -> None:
    driver = machine.start()
    assert {machine.here.drivers(NOTHING) for _ in range(5)} == {(driver.id,)}
    assert machine.searches == 1


def test_one_that_was_started_meanwhile_is_found_when_the_first_is_gone(machine: Machine) -> None:
    first = machine.start()
    assert machine.here.drivers(NOTHING) == (first.id,)
    second = machine.start()
    first.end(0)
    assert machine.here.drivers(NOTHING) == (second.id,)
    second.end(0)
    assert machine.here.drivers(NOTHING) == ()


def test_last_words_count_for_more_than_a_process(machine: Machine) -> None:
    driver = machine.start()
    ended = Sight(at=0, ended=(Ended(driver.id, "stopped", "enough"),))
    assert machine.here.drivers(ended) == ()
