"""The class archive: found when it fits, passed over when it does not, and never in the way."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from state_lib.config import Settings
from state_lib.stack import class_archive, jars, java
from state_lib.submit import DAEMON, JVM_START, submit_conf

MAIN = "org.apache.kafka.common.protocol.Protocol"
"""A program in the connector's jars that prints and ends."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment of its own."""
    monkeypatch.setattr("sys.prefix", str(tmp_path / "env"))
    class_archive.folder().mkdir(parents=True)
    return class_archive.folder()


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    made = tmp_path / "one.jar"
    made.write_bytes(b"classes")
    return made


def kept(folder: Path, jar: Path, content: bytes = b"archive") -> Path:
    made = folder / "making"
    made.write_bytes(content)
    return class_archive.keep(made, java.java_home(), [jar])


def test_none_is_there_at_first(tmp_path: Path, jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.prefix", str(tmp_path / "nowhere"))
    assert class_archive.flags(java.java_home(), [jar]) == ()


def test_what_was_kept_is_found(folder: Path, jar: Path) -> None:
    path = kept(folder, jar)
    assert class_archive.find(java.java_home(), [jar]) == path
    assert f"-XX:SharedArchiveFile={path}" in class_archive.flags(java.java_home(), [jar])


def test_another_jar_or_java_is_another_archive(folder: Path, jar: Path, tmp_path: Path) -> None:
    kept(folder, jar)
    assert class_archive.find(java.java_home(), []) is None
    assert class_archive.find(tmp_path, [jar]) is None
    os.utime(jar, (1, 1))
    assert class_archive.find(java.java_home(), [jar]) is None


@pytest.mark.parametrize("content", [b"", b"archiv", b"Archive"])
def test_a_torn_archive_is_none(folder: Path, jar: Path, content: bytes) -> None:
    """A JVM crashes on one that is too short [tried]."""
    kept(folder, jar).write_bytes(content)
    assert class_archive.find(java.java_home(), [jar]) is None


def test_old_archives_go(folder: Path, jar: Path) -> None:
    for age in range(4, 0, -1):
        os.utime(jar, (age, age))
        path = kept(folder, jar)
        os.utime(path, (1000 - age, 1000 - age))
    assert len(list(folder.iterdir())) == 2
    assert class_archive.find(java.java_home(), [jar]) == path


def test_no_archive_where_a_jvm_could_not_be_told_of_it(
    tmp_path: Path, jar: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.prefix", str(tmp_path / "my env"))
    class_archive.folder().mkdir(parents=True)
    kept(class_archive.folder(), jar)
    assert class_archive.flags(java.java_home(), [jar]) == ()


def test_drivers_here_get_it_and_others_what_they_had(folder: Path) -> None:
    settings = Settings.load(driver_java_options="-Dx=y")
    spark = jars.fetch("spark", directory=settings.jars_dir)
    plain = f"{' '.join(JVM_START)} -Dx=y"
    assert submit_conf(settings, "local[2,4]")["spark.driver.extraJavaOptions"] == plain
    made = folder / "making"
    made.write_bytes(b"archive")
    path = class_archive.keep(made, java.java_home(), spark)
    here = submit_conf(settings, "local[2,4]")
    assert here["spark.driver.extraJavaOptions"].startswith(
        f"{plain} -XX:SharedArchiveFile={path} "
    )
    assert here["spark.driver.extraClassPath"].split(os.pathsep) == [str(jar) for jar in spark]
    assert here["spark.python.daemon.module"] == DAEMON
    for master in ("spark://h:7077", "yarn", "local-cluster[2,1,1024]"):
        there = submit_conf(settings, master)
        assert there["spark.driver.extraJavaOptions"] == "-Dx=y"
        assert there["spark.jars"].split(",") == [str(jar) for jar in spark]
        assert not {"spark.driver.extraClassPath", "spark.python.daemon.module"} & there.keys()


def run(folder: Path, *flags: str) -> tuple[str, str]:
    """What the program says, and which of its classes came from an archive."""
    loaded = folder / "loaded.log"
    path = os.pathsep.join(str(jar) for jar in sorted(folder.glob("*.jar")))
    command = [java.java_binary(), *flags, f"-Xlog:class+load:file={loaded}", "-cp", path, MAIN]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    lines = [line for line in loaded.read_text().splitlines() if "org.apache.kafka" in line]
    return done.stdout, "\n".join(line for line in lines if "shared objects file" in line)


def test_a_jvm_takes_what_fits_and_is_silent_about_what_does_not(
    folder: Path, tmp_path: Path
) -> None:
    for jar in jars.fetch("spark"):
        shutil.copy2(jar, tmp_path)
    ours = sorted(tmp_path.glob("*.jar"))
    made = folder / "making"
    said, shared = run(tmp_path)
    assert said
    assert not shared
    run(tmp_path, *class_archive.making(made))
    path = class_archive.keep(made, java.java_home(), ours)
    flags = class_archive.flags(java.java_home(), ours)
    again, shared = run(tmp_path, *flags)
    assert again == said
    assert MAIN in shared
    for jar in ours:
        os.utime(jar, (1, 1))  # a jar of before, or of after
    assert run(tmp_path, *flags) == (said, "")
    path.chmod(0o600)
    path.write_bytes(b"\0" * 100_000)
    assert run(tmp_path, *flags) == (said, "")
    path.unlink()
    assert run(tmp_path, *flags) == (said, "")


def test_another_jvm_starts_with_what_ours_is_given() -> None:
    flags = [*JVM_START, "-XX:OnlyOfAnother=1", "-XX:+OnlyOfAnother"]
    command = [java.java_binary(), *flags, "-version"]
    subprocess.run(command, capture_output=True, check=True)


@pytest.mark.parametrize(
    "options",
    ["-Xshare:off", "-Dx=y -XX:AOTMode=off", "-XX:AOTCache=x", "-XX:+AutoCreateSharedArchive"],
)
def test_who_chooses_or_wants_none_gets_no_other(folder: Path, options: str) -> None:
    settings = Settings.load(driver_java_options=options)
    made = folder / "making"
    made.write_bytes(b"archive")
    class_archive.keep(made, java.java_home(), jars.fetch("spark"))
    given = submit_conf(settings, "local[2]")["spark.driver.extraJavaOptions"]
    assert "-XX:SharedArchiveFile" not in given
