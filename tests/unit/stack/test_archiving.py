"""Who has the class archive made: one waits for it, the other does not; no failure is theirs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from state_lib.config import Settings
from state_lib.stack import archiving, class_archive, jars, java
from state_lib.stack.paths import Paths
from state_lib.stack.record import VARIABLE, Record
from tests.support.waiting import until

SAY_MARK = f"import os; print(os.environ[{VARIABLE!r}], os.environ['HOLDFAST_DRIVER_MEMORY'])"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment of its own."""
    monkeypatch.setattr("sys.prefix", str(tmp_path / "env"))
    class_archive.folder().mkdir(parents=True)
    return class_archive.folder()


def instead(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(archiving, "COMMAND", (sys.executable, "-c", program))


def test_it_is_missing_until_it_was_made(folder: Path) -> None:
    settings = Settings.load()
    assert archiving.is_missing(settings)
    made = folder / "making"
    made.write_bytes(b"archive")
    spark = jars.fetch("spark", directory=settings.jars_dir)
    class_archive.keep(made, java.java_home(), spark)
    assert not archiving.is_missing(settings)


def test_where_it_could_not_be_made_nobody_tries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars, "lock_path", lambda: tmp_path / "no.lock")
    assert not archiving.is_missing(Settings.load())


def test_setup_waits_and_hears_what_went_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    instead(monkeypatch, "import sys; sys.exit('the disk is full')")
    assert archiving.make() == "the disk is full"
    instead(monkeypatch, "print('made')")
    assert archiving.make() is None


def test_up_does_not_wait_and_down_can_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings.load(home=tmp_path / "home", driver_memory="321m")
    paths = Paths(settings.home)
    paths.create()
    mine = Record.new({})
    mine.write(paths.record)
    instead(monkeypatch, SAY_MARK)
    archiving.make_beside(settings)
    log = paths.log("class-archive")
    until(lambda: log.read_text().strip() == f"{mine.id} 321m")
