"""Writes a project: a job, its loader, its DAGs, configuration, tests and a page to read."""

from __future__ import annotations

import contextlib
import keyword
import re
import sys
from importlib.metadata import packages_distributions, version
from pathlib import Path
from string import Template

from state_lib.companions import ENDINGS
from state_lib.errors import ConfigurationError, InvalidName
from state_lib.stack.programs import KAFKA

TEMPLATE = Path(__file__).with_name("template")
ENDING = ".in"
OURS = ("state_lib", "holdfast_airflow", "pyspark_holdfast")
"""An editable installation does not name them as its packages."""
# The name is used for a file, a DAG, an application and a topic of events.
_LEGAL = re.compile(r"[a-z][a-z0-9_]{0,59}")


def write_project(name: str, folder: Path) -> list[Path]:
    """Write the project's files; returns their paths, relative to ``folder``.

    Raises:
        InvalidName: the name cannot be an application and a Python file at once, or its file would
            be taken for another thing.
        ConfigurationError: a file of that name is there already, or the folder cannot be written;
            nothing is written then.
    """
    _check(name)
    words = {"name": name, "version": version("holdfast")}
    sources = sorted(path for path in TEMPLATE.rglob(f"*{ENDING}") if path.is_file())
    files = {_target(source, name): source for source in sources}
    there = [str(path) for path in files if (folder / path).exists()]
    if there:
        raise ConfigurationError(
            f"{folder} has {', '.join(there)} already: nothing was written. Take another name, or "
            "another folder with --dir",
            folder=str(folder),
            files=there,
        )
    made: list[Path] = []
    for path, source in files.items():
        text = Template(source.read_text()).substitute(words)
        try:
            _write(folder / path, text, made)
        except OSError as error:
            _undo(made)
            raise ConfigurationError(
                f"cannot write {folder / path}: {error.strerror}. Choose a folder with --dir",
                path=str(folder / path),
            ) from error
    return list(files)


def _write(path: Path, text: str, made: list[Path]) -> None:
    """Write a file; all that did not exist before is added to ``made``, outermost first."""
    for parent in reversed([one for one in path.parents if not one.exists()]):
        parent.mkdir()
        made.append(parent)
    made.append(path)
    path.write_text(text)


def _undo(made: list[Path]) -> None:
    for path in reversed(made):
        with contextlib.suppress(OSError):
            path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)


def _check(name: str) -> None:
    if not _LEGAL.fullmatch(name) or keyword.iskeyword(name):
        why = "take 1 to 60 lower-case letters, digits and '_', beginning with a letter"
    elif name.endswith(ENDINGS):
        why = f"jobs whose names end in {' or '.join(ENDINGS)} are parts of others"
    elif name == KAFKA:
        why = "the local stack has a service of that name"
    elif name in {*sys.stdlib_module_names, *packages_distributions(), *OURS}:
        # Python looks for modules in the script's folder first.
        why = f"jobs/{name}.py would hide the Python module {name!r} from every job beside it"
    else:
        return
    raise InvalidName(
        f"project name {name!r} is not usable: {why}. Take one such as 'page_views'",
        kind="project",
        name=name,
    )


def _target(source: Path, name: str) -> Path:
    relative = source.relative_to(TEMPLATE)
    return relative.with_name(relative.name.removesuffix(ENDING).replace("NAME", name))
