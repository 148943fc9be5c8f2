"""Who has the class archive made: one waits for it, the other does not; no failure is theirs."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from state_lib.config import Settings
from state_lib.stack import __main__ as setup
from state_lib.stack import archiving, class_archive, jars, java
from state_lib.stack.paths import Paths
from state_lib.stack.record import VARIABLE, Record
from tests.support.waiting import until

SAY_MARK = f"import os; print(os.environ[{VARIABLE!r}], os.environ['HOLDFAST_DRIVER_MEMORY'])"

TIDY = """
import pathlib, signal, sys, time

def end(*_):
    time.sleep(1)
    pathlib.Path("tidy").touch()
    sys.exit(1)

signal.signal(signal.SIGTERM, end)
pathlib.Path("begun").touch()
time.sleep(60)
"""


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


def test_where_it_was_tried_in_vain_it_is_not_missing(folder: Path, tmp_path: Path) -> None:
    settings = Settings.load()
    home, spark = java.java_home(), jars.fetch("spark", directory=settings.jars_dir)
    class_archive.note_failure(tmp_path, spark, "of another Java")
    assert archiving.is_missing(settings)
    class_archive.note_failure(home, spark, "the disk is full")
    assert not archiving.is_missing(settings)
    assert class_archive.failed(home, spark).read_text() == "the disk is full\n"
    made = folder / "making"
    made.write_bytes(b"archive")
    class_archive.keep(made, home, spark)
    assert not class_archive.failed(home, spark).exists()


def test_where_drivers_would_not_use_it_it_is_not_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not archiving.is_missing(Settings.load(driver_java_options="-Dx=y -Xshare:off"))
    monkeypatch.setattr("sys.prefix", str(tmp_path / "my env"))
    assert not archiving.is_missing(Settings.load())


def test_jars_are_left_to_who_makes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(*_: Any, **__: Any) -> None:
        raise AssertionError("somebody waits for a download")

    monkeypatch.setattr(jars, "fetch", fetch)
    monkeypatch.setattr(jars, "_fetch_all", fetch)
    assert archiving.is_missing(Settings.load(jars_dir=tmp_path / "jars"))


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


def test_an_interrupt_waits_until_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    instead(monkeypatch, TIDY)

    def interrupt() -> None:
        until((tmp_path / "begun").exists)
        os.kill(os.getpid(), signal.SIGINT)

    # As at a terminal: what is started in the background of a shell inherits that it is ignored.
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            archiving.make()
    finally:
        signal.signal(signal.SIGINT, inherited)
    assert (tmp_path / "tidy").exists()


def test_setup_does_not_need_the_users_settings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOLDFAST_KAFKA_PORT", "many")
    setup._archive(Console(stderr=True))
    assert "setup: no class archive was made" in capsys.readouterr().err


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
