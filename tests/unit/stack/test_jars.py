"""JVM artifacts: what is on disk has the lock's hash, or it is not there."""

import hashlib
from pathlib import Path

import pytest

from state_lib.errors import ConfigurationError, Unavailable
from state_lib.stack import jars

CONTENT = b"not really a jar"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Maven repository of this machine; the network is out of reach."""
    root = tmp_path / "m2"
    monkeypatch.setenv("M2_REPO", str(root))

    def unreachable(jar: jars.Jar, staging: Path) -> Path:
        raise Unavailable(f"cannot download {jar.coordinate} to {staging}")

    monkeypatch.setattr(jars, "_download", unreachable)
    return root


def write_lock(tmp_path: Path, digest: str = DIGEST) -> Path:
    path = tmp_path / "jars.lock"
    path.write_text(f"# a comment\n\norg.example:thing:1.0 {digest} kafka\n")
    return path


def serve(monkeypatch: pytest.MonkeyPatch, content: bytes) -> list[str]:
    asked = []

    def download(jar: jars.Jar, staging: Path) -> Path:
        asked.append(jar.coordinate)
        path = staging / "downloaded.jar"
        path.write_bytes(content)
        return path

    monkeypatch.setattr(jars, "_download", download)
    return asked


@pytest.mark.usefixtures("maven")
def test_downloads_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = serve(monkeypatch, CONTENT)
    lock = write_lock(tmp_path)
    reports: list[tuple[int, int]] = []
    for _ in range(2):
        ready = jars.fetch(
            "kafka", directory=tmp_path, lock=lock, report=lambda *seen: reports.append(seen)
        )
    assert [path.read_bytes() for path in ready] == [CONTENT]
    assert asked == ["org.example:thing:1.0"]
    assert reports == [(1, 1)]


@pytest.mark.usefixtures("maven")
def test_refuses_other_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, b"altered on its way")
    with pytest.raises(ConfigurationError) as refused:
        jars.fetch("kafka", directory=tmp_path, lock=write_lock(tmp_path))
    assert refused.value.details["artifact"] == "org.example:thing:1.0"
    assert refused.value.details["expected"] == DIGEST
    assert refused.value.details["seen"] in refused.value.message
    assert list((tmp_path / "kafka").iterdir()) == [], "neither the jar nor staging may stay"


@pytest.mark.usefixtures("maven")
def test_a_torn_file_is_fetched_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, CONTENT)
    torn = tmp_path / "kafka" / "thing-1.0.jar"
    torn.parent.mkdir()
    torn.write_bytes(CONTENT[:3])
    jars.fetch("kafka", directory=tmp_path, lock=write_lock(tmp_path))
    assert torn.read_bytes() == CONTENT


def test_takes_the_machines_own_copy(tmp_path: Path, maven: Path) -> None:
    own = maven / "org" / "example" / "thing" / "1.0" / "thing-1.0.jar"
    own.parent.mkdir(parents=True)
    own.write_bytes(CONTENT)
    (ready,) = jars.fetch("kafka", directory=tmp_path, lock=write_lock(tmp_path))
    assert ready.read_bytes() == CONTENT
    assert own.exists(), "copied, not moved"


def test_offline_says_which(tmp_path: Path, maven: Path) -> None:
    assert not maven.exists()
    with pytest.raises(Unavailable, match=r"org\.example:thing:1\.0"):
        jars.fetch("kafka", directory=tmp_path, lock=write_lock(tmp_path))


@pytest.mark.parametrize("line", ["a:b 00 kafka", f"a:b:1 {DIGEST}", f"a:b:1 {DIGEST} nosuch"])
def test_a_bad_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "jars.lock"
    path.write_text(line + "\n")
    with pytest.raises(ConfigurationError, match=r"jars\.lock:1"):
        jars.read_lock(path)


def test_unknown_set() -> None:
    with pytest.raises(ConfigurationError, match="nosuch"):
        jars.fetch("nosuch")


def test_the_lock_of_the_project_is_whole() -> None:
    lock = jars.read_lock()
    assert {jar.set for jar in lock} == set(jars.SETS)
    assert len(lock) == len({(jar.coordinate, jar.set) for jar in lock})
    assert all(not jar.version.endswith("SNAPSHOT") for jar in lock)
