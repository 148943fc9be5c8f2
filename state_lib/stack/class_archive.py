"""A class archive for Spark's JVM (AppCDS): what a start loads, verified once and then mapped.

A driver's JVM loads 20,000 classes before its first commit, and reading them out of their jars is a
third of that time. (docs/adr/0017) An archive is a help and nothing else: without one, or with one
that does not fit, a driver starts as it would have, only later.

- Its name says what it was made of (Java, jars, class path), so that a stale one is not even tried;
  and its own hash, so that neither is a torn one, which a JVM would map and crash on.
- The JVM checks version, paths, sizes and times of all jars itself, and ignores it if they differ.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import xxhash

_MADE = "1"
"""Counts up when `state_lib.spark.training` does something else."""
_KEPT = 2
"""Archives of 170 MB: the present one, and one of another Java or of a branch."""
_CHUNK = 1 << 20
_CHOOSING = (
    "-Xshare:",
    "-XX:SharedArchiveFile",
    "-XX:ArchiveClassesAtExit",
    "-XX:+AutoCreateSharedArchive",
    "-XX:AOT",
)
# Else the JVM would write warnings about the archive to the job's output.
_QUIET = ("-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")


def folder() -> Path:
    """Where archives are kept: in the environment, of whose jars they are made."""
    return Path(sys.prefix) / "var" / "cache" / "holdfast"


def flags(java: Path, jars: Sequence[Path]) -> tuple[str, ...]:
    """The JVM flags that use the archive; none if there is no good one.

    Args:
        java: home of the Java that runs.
        jars: what stands before Spark's own jars in the class path.
    """
    found = find(java, jars)
    return () if found is None else (f"-XX:SharedArchiveFile={found}", *_QUIET)


def making(path: Path) -> tuple[str, ...]:
    """The JVM flags that make an archive when the JVM ends."""
    return (f"-XX:ArchiveClassesAtExit={path}", *_QUIET)


def chosen(options: str) -> bool:
    """Whether these JVM options say themselves which archive is used, or made, or that none is."""
    return any(option.startswith(_CHOOSING) for option in options.split())


def is_usable(path: Path) -> bool:
    """Whether it can be in a JVM's option: a colon separates archives, Spark splits at spaces."""
    return not set(str(path)) & set(": \"'\\")


def find(java: Path, jars: Sequence[Path]) -> Path | None:
    """The archive for this Java and these jars; None if there is none, or none that is whole."""
    with contextlib.suppress(OSError):
        for path in sorted(folder().glob(f"{_stem(java, jars)}-*.jsa")):
            if is_usable(path) and path.stem.endswith(f"-{_digest(path)}"):
                return path
    return None


def keep(made: Path, java: Path, jars: Sequence[Path]) -> Path:
    """Put a new archive in its place, and remove the oldest that are there.

    Args:
        made: in `folder`: a JVM must never see half of one.
        java: as in `flags`.
        jars: as in `flags`.
    """
    with made.open("rb") as file:
        os.fsync(file.fileno())
    path = folder() / f"{_stem(java, jars)}-{_digest(made)}.jsa"
    made.replace(path)
    failed(java, jars).unlink(missing_ok=True)
    for old in sorted(folder().glob("spark-*.jsa"), key=_made_at, reverse=True)[_KEPT:]:
        old.unlink(missing_ok=True)  # a JVM that has mapped it keeps it
    return path


def failed(java: Path, jars: Sequence[Path]) -> Path:
    """What is there if none could be made for these, and says why; as in `flags`."""
    return folder() / f"{_stem(java, jars)}.failed"


def note_failure(java: Path, jars: Sequence[Path], why: str) -> None:
    """Leave word that none could be made for these: it is not tried again and again."""
    with contextlib.suppress(OSError):
        for old in folder().glob("spark-*.failed"):
            old.unlink(missing_ok=True)
        failed(java, jars).write_text(f"{why}\n")


def spark_home() -> Path | None:
    """Where Spark is, without importing PySpark."""
    if chosen := os.environ.get("SPARK_HOME"):
        return Path(chosen)
    spec = importlib.util.find_spec("pyspark")
    places = spec.submodule_search_locations if spec else None
    return Path(next(iter(places))) if places else None


def _stem(java: Path, jars: Sequence[Path]) -> str:
    said = hashlib.sha256(_MADE.encode())
    for line in _made_of(java, jars):
        said.update(f"\n{line}".encode())
    return f"spark-{said.hexdigest()[:24]}"


def _made_of(java: Path, jars: Iterable[Path]) -> Iterator[str]:
    home = spark_home()
    yield str(java.resolve())
    yield os.environ.get("SPARK_CONF_DIR", "")  # it is in the class path
    ours = (java / "release", java / "lib" / "server" / "libjvm.so", *jars)
    for path in (*ours, *(sorted((home / "jars").glob("*.jar")) if home else ())):
        with contextlib.suppress(FileNotFoundError):
            seen = path.stat()
            yield f"{path} {seen.st_size} {seen.st_mtime_ns}"


def _digest(path: Path) -> str:
    said = xxhash.xxh3_128()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            said.update(chunk)
    return said.hexdigest()


def _made_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # another process removes old ones as well
        return 0.0
