"""JVM artifacts: what is on disk has the lock's hash, or it is not there."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import stamina

from state_lib.errors import ConfigurationError, Unavailable
from state_lib.stack import __main__ as setup
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


@pytest.mark.parametrize(
    ("coordinate", "file"),
    [
        ("org.example:thing:1.0", "thing-1.0.jar"),
        ("org.example:thing:tar.gz:all:1.0", "thing-1.0-all.tar.gz"),
    ],
)
def test_types_and_classifiers(tmp_path: Path, maven: Path, coordinate: str, file: str) -> None:
    path = tmp_path / "jars.lock"
    path.write_text(f"{coordinate} {DIGEST} registry\n")
    (jar,) = jars.read_lock(path)
    assert (jar.coordinate, jar.file_name) == (coordinate, file)
    own = maven / "org" / "example" / "thing" / "1.0" / file
    own.parent.mkdir(parents=True)
    own.write_bytes(CONTENT)
    assert jars.fetch("registry", directory=tmp_path, lock=path) == (tmp_path / "registry" / file,)


@dataclass
class Answer:
    """Of a repository; None: the connection breaks."""

    chunks: list[bytes | None]
    status_code: int = 200
    text: str = ""

    @property
    def headers(self) -> dict[str, str]:
        return {}

    def iter_content(self, chunk_size: int) -> Iterator[bytes]:
        for chunk in self.chunks:
            if chunk is None:
                raise ConnectionError(f"broken, {chunk_size} bytes at most were asked for")
            yield chunk


def test_a_download_that_breaks_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And takes the file that is meant."""
    asked: list[str] = []
    answers = [Answer([CONTENT[:3], None]), Answer([CONTENT])]

    def request(method: str, url: str, **_: object) -> Answer:
        if url.endswith(".sha1"):
            return Answer([], 404)
        asked.append(f"{method} {url}")
        return answers.pop(0)

    monkeypatch.setattr("requests.request", request)  # which jgo calls
    jar = jars.Jar("org.example", "thing", "1.0", DIGEST, "registry", "tar.gz", "all")
    with stamina.set_testing(True, attempts=3):
        assert jars._download(jar, tmp_path).read_bytes() == CONTENT
    assert [one.rpartition("/org/")[2] for one in asked] == [
        "example/thing/1.0/thing-1.0-all.tar.gz"
    ] * 2


@pytest.mark.parametrize(
    "line",
    [
        "a:b 00 kafka",
        f"a:b:1 {DIGEST}",
        f"a:b:1 {DIGEST} nosuch",
        f"a:1 {DIGEST} kafka",
        f"a:b:tar.gz:1 {DIGEST} kafka",
    ],
)
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


def test_the_registry_is_for_developers_alone() -> None:
    """`make setup` names it; who installs Holdfast downloads it in no way."""
    assert "registry" not in setup.NEEDED
    root = Path(__file__).parents[3]
    assert "-m state_lib.stack registry" in (root / "Makefile").read_text()
    shipped = [*(root / "state_lib").rglob("*.py"), *(root / "docker").rglob("Dockerfile*")]
    named = ('fetch("registry"', "state_lib.stack registry")
    assert not [p for p in shipped if any(one in p.read_text() for one in named)]
