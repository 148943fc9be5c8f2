"""The class archive as it is made for users: by a whole driver, on a broker of its own."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from state_lib.config import Settings
from state_lib.errors import Unavailable
from state_lib.spark import training
from state_lib.stack import class_archive, jars, java

CLASSES = ("org/apache/spark/sql/kafka010/KafkaSourceProvider", "scala/collection/immutable/List")
LEAST = 50 << 20


@pytest.mark.full
def test_it_holds_what_a_driver_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert not [p for p in psutil.Process().children(recursive=True) if p.is_running()]


def test_a_second_one_leaves_the_first_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    monkeypatch.setattr("os.nice", lambda _: 0)
    with training._alone() as mine:
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
