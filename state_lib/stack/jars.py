"""JVM artifacts by lock: fetched in parallel, checked by SHA-256, never half there.

``jars.lock`` names every artifact of a set (`SETS`) and its hash.
We resolve nothing at run time: jgo only downloads exact coordinates, so what runs is what was
tested. A download goes to a staging directory on the same file system, is hashed there and only
then renamed to its place: a killed download leaves rubbish in staging, not a torn jar.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import stamina

from state_lib.errors import ConfigurationError, Unavailable

SETS = ("kafka", "spark", "streams", "registry")
WORKERS = 8
TIMEOUT_S = 60
Report = Callable[[int, int], None]


@dataclass(frozen=True)
class Jar:
    """One line of the lock."""

    group: str
    artifact: str
    version: str
    sha256: str
    set: str
    type: str = "jar"
    classifier: str = ""

    @property
    def coordinate(self) -> str:
        """``group:artifact[:type:classifier]:version``, as Maven writes it."""
        kind = [self.type, self.classifier] if self.classifier else []
        return ":".join([self.group, self.artifact, *kind, self.version])

    @property
    def file_name(self) -> str:
        """The name that Maven repositories give to the file."""
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.artifact}-{self.version}{classifier}.{self.type}"


def lock_path() -> Path:
    """The lock: inside the package when installed from a wheel, at the root of a checkout."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "jars.lock"
    return inside if inside.exists() else package.parent / "jars.lock"


def read_lock(path: Path | None = None) -> tuple[Jar, ...]:
    """Parse the lock.

    Raises:
        ConfigurationError: a line that is not ``coordinate sha256 set``.
    """
    path = path or lock_path()
    jars = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = line.split()
        parts = fields[0].split(":")
        fits = len(fields) == 3 and len(parts) in {3, 5} and len(fields[1]) == 64  # noqa: PLR2004 - the format's own numbers
        if not fits or fields[2] not in SETS:
            message = (
                f"{path}:{number}: {line!r} is not 'group:artifact[:type:classifier]:version "
                f"sha256 set' with a set of {', '.join(SETS)}. Restore the file from version "
                "control."
            )
            raise ConfigurationError(message, path=str(path), line=number)
        group, artifact, *kind, version = parts
        jars.append(Jar(group, artifact, version, fields[1], fields[2], *kind))
    return tuple(jars)


def default_directory() -> Path:
    """``HOLDFAST_JARS_DIR``, or the user's cache: jars are shared by all homes of a user."""
    chosen = os.environ.get("HOLDFAST_JARS_DIR")
    if chosen:
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "holdfast" / "jars"


def fetch(
    name: str,
    *,
    directory: Path | None = None,
    lock: Path | None = None,
    report: Report | None = None,
) -> tuple[Path, ...]:
    """Make sure that a set is on disk and return its files in the lock's order.

    Every call hashes what is there (0.1 s for the broker's 44 MB): a jar that rotted or was
    swapped is fetched again and not run.

    Args:
        name: One of `SETS`.
        directory: Where sets are kept, one folder each; default `default_directory`.
        lock: The lock file; default `lock_path`.
        report: Called with (files ready, files in all) as downloads end.

    Raises:
        ConfigurationError: an unknown set, or a download with another hash than the lock's.
        Unavailable: the download failed; trying again is right.
    """
    jars = _of_set(name, lock)
    folder = (directory or default_directory()) / name
    missing = [jar for jar in jars if sha256(folder / jar.file_name) != jar.sha256]
    if missing:
        _fetch_all(missing, folder, len(jars), report)
    return tuple(folder / jar.file_name for jar in jars)


def expected(name: str, *, directory: Path | None = None) -> tuple[Path, ...]:
    """Where `fetch` puts a set, in the same order. Looks at no file and downloads none."""
    folder = (directory or default_directory()) / name
    return tuple(folder / jar.file_name for jar in _of_set(name))


def _of_set(name: str, lock: Path | None = None) -> list[Jar]:
    jars = [jar for jar in read_lock(lock) if jar.set == name]
    if not jars:
        message = f"no set of jars named {name!r} in the lock; there are {', '.join(SETS)}."
        raise ConfigurationError(message, set=name)
    return jars


def sha256(path: Path) -> str | None:
    """The hex digest of a file, None when it does not exist."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None


def _fetch_all(missing: Iterable[Jar], folder: Path, total: int, report: Report | None) -> None:
    missing = list(missing)
    folder.mkdir(parents=True, exist_ok=True)
    ready = total - len(missing)
    with (
        tempfile.TemporaryDirectory(prefix=".staging-", dir=folder) as staging,
        ThreadPoolExecutor(WORKERS) as pool,
    ):
        for _ in pool.map(lambda jar: _fetch_one(jar, folder, Path(staging)), missing):
            ready += 1
            if report:
                report(ready, total)


def _fetch_one(jar: Jar, folder: Path, staging: Path) -> None:
    source = _local_copy(jar) or _download(jar, staging)
    seen = sha256(source)
    if seen != jar.sha256:
        message = (
            f"{jar.coordinate} has SHA-256 {seen}, but jars.lock expects {jar.sha256}. Nothing was "
            "installed. Either something between here and the Maven repository alters downloads "
            "(ask who runs the proxy), or jars.lock was edited: restore it from version control."
        )
        raise ConfigurationError(message, artifact=jar.coordinate, seen=seen, expected=jar.sha256)
    if not source.is_relative_to(staging):
        source = Path(shutil.copy2(source, staging / jar.file_name))
    source.replace(folder / jar.file_name)


def _local_copy(jar: Jar) -> Path | None:
    """Maven's own repository on this machine, if it holds the very same bytes."""
    maven = Path(os.environ.get("M2_REPO") or Path.home() / ".m2" / "repository")
    path = maven.joinpath(*jar.group.split("."), jar.artifact, jar.version, jar.file_name)
    return path if sha256(path) == jar.sha256 else None


@stamina.retry(on=Unavailable, attempts=3, wait_initial=1.0, timeout=None)
def _download(jar: Jar, staging: Path) -> Path:
    from jgo.maven import MavenContext  # noqa: PLC0415 - 0.2 s that a warm start does not need

    # jgo takes for whole what an attempt before has left of a file, so each has its own folder.
    cache = Path(tempfile.mkdtemp(dir=staging))
    component = MavenContext(repo_cache=cache, timeout=TIMEOUT_S).project(jar.group, jar.artifact)
    try:
        path: Path = component.at_version(jar.version).artifact(jar.classifier, jar.type).resolve()
    except (OSError, RuntimeError) as error:  # requests' errors are OSErrors
        message = (
            f"cannot download {jar.coordinate}: {error}. Check the network (and HTTPS_PROXY), then "
            "run the command again: what is already there is kept."
        )
        raise Unavailable(message, artifact=jar.coordinate) from error
    return path
