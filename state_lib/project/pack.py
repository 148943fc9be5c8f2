"""An archive of what executors need, for machines that have Spark and Python but no Holdfast.

It holds this environment's own files, so that executors run the versions that the driver runs:
Holdfast, what its executor half imports, and whatever else is named. PySpark is left out: executors
have it.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import Requirement

from state_lib.errors import ConfigurationError

# What Spark tasks import: state_lib.executor, the client, serdes, settings; to read snapshots
# (state_lib.spark.source) also stores and storage, for which other protocols than files need a
# package of their own (--with s3fs).
ROOTS = (
    "confluent-kafka[schemaregistry]",
    "fastavro",
    "fsspec",
    "numpy",
    "orjson",
    "pandas",
    "pyarrow",
    "pydantic",
    "pydantic-settings",
    "rocksdict",
    "sortedcontainers",
    "stamina",
    "structlog",
    "universal-pathlib",
    "xxhash",
)
OURS = ("state_lib", "pyspark_holdfast")
_COMPRESSION = 1  # higher levels shrink shared objects little, and take ten times longer


def pack(output: Path, extra: Iterable[str] = ()) -> int:
    """Write the archive; returns how many distributions are in it.

    Args:
        output: a ``.tar.gz``; replaced as one when it is complete.
        extra: more distributions of this environment, for what executors import.

    Raises:
        ConfigurationError: one is not installed here, or the file cannot be written.
    """
    found = list(_closure((*ROOTS, *extra)))
    fresh = output.with_name(output.name + ".new")
    try:
        with tarfile.open(fresh, "w:gz", compresslevel=_COMPRESSION) as archive:
            for package in OURS:
                folder = _folder(package)
                for file in sorted(folder.rglob("*")):
                    if file.is_file() and "__pycache__" not in file.parts:
                        archive.add(file, f"{package}/{file.relative_to(folder)}")
            for one in found:
                for path, name in _files(one):
                    archive.add(path, name)
        fresh.replace(output)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise ConfigurationError(
            f"cannot write {output}: {error.strerror}. Choose another file with --output",
            path=str(output),
        ) from error
    return len(found) + 1


def _folder(package: str) -> Path:
    """Of a package of ours; it is not imported: without PySpark not all of them can be."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ConfigurationError(f"{package} is not whole here: install Holdfast anew")
    return Path(spec.origin).parent


def _closure(names: Iterable[str]) -> Iterator[Distribution]:
    """Distributions and all that they require in this environment, each once.

    Without extras, but for those that a name has in brackets.
    """
    todo, seen = list(names), dict[str, set[str]]()
    while todo:
        name, _, extras = todo.pop().rstrip("]").partition("[")
        key = re.sub(r"[-_.]+", "-", name).lower()
        asked = {"", *filter(None, extras.split(","))} - seen.get(key, set())
        if not asked or key.startswith("pyspark"):
            continue
        is_new = key not in seen
        seen.setdefault(key, set()).update(asked)
        try:
            one = distribution(key)
        except PackageNotFoundError as error:
            raise ConfigurationError(
                f"{key!r} is not installed in this environment: install it, or correct --with",
                distribution=key,
            ) from error
        if is_new:
            yield one
        requirements = [Requirement(text) for text in one.requires or ()]
        todo += [
            r.name
            for r in requirements
            if not r.marker or any(r.marker.evaluate({"extra": extra}) for extra in asked)
        ]


def _files(one: Distribution) -> Iterator[tuple[Path, str]]:
    """A distribution's files below site-packages; neither scripts nor byte code."""
    for file in one.files or ():
        path = Path(str(one.locate_file(file)))
        if ".." not in file.parts and "__pycache__" not in file.parts and path.is_file():
            yield path, str(file)
