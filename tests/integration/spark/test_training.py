"""The class archive as it is made for users: by a whole driver, on a broker of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from state_lib.config import Settings
from state_lib.errors import Unavailable
from state_lib.processes import end, marked
from state_lib.spark import training
from state_lib.spark.training_place import VARIABLE, alone, mark
from state_lib.stack import class_archive, jars, java
from tests.support.waiting import until

CLASSES = ("org/apache/spark/sql/kafka010/KafkaSourceProvider", "scala/collection/immutable/List")
LEAST = 50 << 20
TRAIN = (
    "import sys; sys.prefix = sys.argv[1]; from state_lib.spark import training; training.main()"
)


@pytest.mark.full
def test_it_holds_what_a_driver_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = psutil.Process().children(recursive=True)
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    class_archive.folder().mkdir(parents=True)
    made = class_archive.folder() / "made.jsa"
    settings = Settings.load()
    training.train(settings, made)
    assert made.stat().st_size > LEAST
    content = made.read_bytes()
    assert all(name.encode() in content for name in CLASSES)
    spark = jars.fetch("spark", directory=settings.jars_dir)
    path = class_archive.keep(made, java.java_home(), spark)
    assert class_archive.find(java.java_home(), spark) == path
    left = set(psutil.Process().children(recursive=True)) - set(before)
    assert not [p for p in left if p.is_running()]


def test_a_second_one_leaves_the_first_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    monkeypatch.setattr("os.nice", lambda _: 0)
    with alone() as mine:
        assert mine
        assert training.main() == 0, "somebody makes it"
    assert not list(class_archive.folder().glob("*.jsa"))


@pytest.mark.full
def test_a_driver_that_does_not_come_up_is_told(tmp_path: Path) -> None:
    settings = Settings.load(driver_java_options="-XX:+UseSerialGC -XX:+UseParallelGC")
    made = tmp_path / "made.jsa"
    with pytest.raises(Unavailable, match=r"JVM|driver"):
        training.train(settings, made)
    assert not made.exists()


def test_only_what_an_archive_must_fit_is_taken_over(tmp_path: Path) -> None:
    options = "-XX:+UseParallelGC -Xmn64m -XX:-UseCompressedOops -agentlib:jdwp=server=y -Xlog:gc"
    environment = training._environment(
        Settings.load(driver_java_options=f"{options} -Dx=y"), tmp_path, "b:1", tmp_path / "x.jsa"
    )
    given = environment["HOLDFAST_DRIVER_JAVA_OPTIONS"].split()
    assert given[:4] == [*options.split()[:3], f"-XX:ArchiveClassesAtExit={tmp_path / 'x.jsa'}"]


class Trainings:
    """Processes that train, in an environment of their own."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "TMPDIR": str(self.path)}
        return subprocess.Popen([sys.executable, "-c", TRAIN, str(self.path)], env=environment)

    def folders(self) -> set[Path]:
        return set(self.path.glob("holdfast-training-*"))

    def await_driver(self, but: set[Path]) -> None:
        until(lambda: any((f / "driver.log").exists() for f in self.folders() - but), 60)


@pytest.fixture
def trainings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trainings]:
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    yield Trainings(tmp_path)
    end(marked(VARIABLE, mark()), signal.SIGKILL, 10)


@pytest.mark.full
def test_one_that_is_ended_leaves_nothing(trainings: Trainings) -> None:
    process = trainings.start()
    trainings.await_driver(set())  # its log is there before it is
    until(lambda: len(marked(VARIABLE, mark())) >= 3, 60)
    process.terminate()
    assert process.wait(60) == 1
    assert not marked(VARIABLE, mark())
    assert not trainings.folders()
    assert not list(class_archive.folder().glob("*.failed")), "it was not in vain"


@pytest.mark.full
def test_one_that_is_killed_leaves_nothing_to_the_next(trainings: Trainings) -> None:
    first = trainings.start()
    trainings.await_driver(set())
    first.kill()
    first.wait()
    left, folders = marked(VARIABLE, mark()), trainings.folders()
    assert len(left) >= 2
    assert folders
    second = trainings.start()
    trainings.await_driver(folders)
    assert not [p for p in left if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    assert not folders & trainings.folders()
    second.terminate()
    assert second.wait(60) == 1
    assert not marked(VARIABLE, mark())
    assert not trainings.folders()
