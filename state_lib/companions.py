"""Finds what stands beside a job: ``<jobs>/<name>_load.py``, ``<jobs>/<name>_audit.py``."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Literal, get_args

from state_lib.declaration import Declaration
from state_lib.errors import NotFound
from state_lib.names import check_name

Role = Literal["load", "audit"]
ENDINGS = tuple(f"_{role}" for role in get_args(Role))
"""Of files beside a stream's."""


def companion(name: str, role: Role, jobs: Path, function: str) -> ModuleType:
    """Import a job's companion by path; it may import its neighbours.

    Raises:
        InvalidName: ``name`` could lead elsewhere.
        NotFound: there is no such file (lists those that exist), or it lacks ``function``.
    """
    path = jobs.absolute() / f"{check_name('job', name)}_{role}.py"
    if not path.is_file():
        known = companions(role, jobs)
        raise NotFound(
            f"{path} does not exist. To {role} there are in {jobs}/: {', '.join(known) or 'none'}. "
            "Use --jobs or HOLDFAST_JOBS_DIR for another directory.",
            name=name,
            known=known,
        )
    module = _import(path)
    if not callable(getattr(module, function, None)):
        raise NotFound(f"{path} defines no function {function}(...)", name=name)
    return module


def declared(app: str, jobs: Path) -> Declaration | None:
    """The application of that id, from the job that declares it; None if none there does.

    Looks into the file of the same name first: a folder's other jobs may not be fit to import.
    """
    folder = jobs.absolute()
    for path in sorted(streams(folder), key=lambda path: path.stem != app):
        for value in vars(_import(path)).values():
            if isinstance(value, Declaration) and value.id == app:
                return value
    return None


def _import(path: Path) -> ModuleType:
    for folder in (path.parent, path.parent.parent):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}.{path.stem}", path)
    if spec is None or spec.loader is None:
        raise NotFound(f"{path} cannot be imported", path=str(path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def streams(folder: Path) -> list[Path]:
    """Files in a jobs folder that declare a stream: neither private nor a companion."""
    files = folder.glob("*.py")
    return sorted(p for p in files if p.stem[0] != "_" and not p.stem.endswith(ENDINGS))


def companions(role: Role, jobs: Path) -> list[str]:
    """Names for which a companion exists."""
    suffix = f"_{role}.py"
    return sorted(p.name.removesuffix(suffix) for p in jobs.glob(f"*{suffix}"))
