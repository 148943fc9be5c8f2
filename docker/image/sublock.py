"""A part of a lock: what some packages need, with the lock's versions and hashes, and nothing else.

``sublock.py requirements.lock hatchling`` or ``… --project pyproject.toml --extra s3``. The lock is
one of `uv pip compile`, which writes below each package by whom it is needed (``# via``). Standard
library only: it runs before anything is installed.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_REQUIREMENT = re.compile(rf"({_NAME.pattern})(?:\[\s*([^\]]*?)\s*\])?")
_VIA = re.compile(r"\s+#\s+(?:via(?:\s+|$))?(\S*)")


@dataclass
class Locked:
    """A package of the lock: its lines, and who needs it."""

    lines: list[str] = field(default_factory=list)
    needed_by: set[str] = field(default_factory=set)


def read_lock(text: str) -> dict[str, Locked]:
    """Packages by normalised name; a package has one entry for each of its markers' versions."""
    found: dict[str, Locked] = {}
    current = Locked()
    for line in text.splitlines():
        if not line.startswith((" ", "#")) and (match := _NAME.match(line)):
            current = found.setdefault(normal(match[0]), Locked())
        if via := _VIA.match(line):
            current.needed_by.add(normal(via[1]))
        elif not line.startswith("#"):
            current.lines.append(line)
    return found


def closure(lock: dict[str, Locked], roots: Iterable[str]) -> set[str]:
    """The roots and all that they need, by who needs whom."""
    needs: dict[str, set[str]] = {}
    for name, locked in lock.items():
        for parent in locked.needed_by:
            needs.setdefault(parent, set()).add(name)
    todo, seen = [normal(root) for root in roots], set[str]()
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += needs.get(name, ())
    return seen


def declared(project: Path, extras: Iterable[str]) -> list[str]:
    """Names of a project's dependencies, those of some extras, and of extras in these, included."""
    table = tomllib.loads(project.read_text())["project"]
    todo, seen, found = list(extras), set[str](), []
    texts: list[str] = table["dependencies"]
    while True:
        for match in filter(None, map(_REQUIREMENT.match, texts)):
            if normal(match[1]) == normal(table["name"]):
                todo += re.split(r"\s*,\s*", match[2] or "")
            else:
                found.append(match[1])
        todo = [one for one in todo if one and one not in seen]
        if not todo:
            return found
        seen.add(extra := todo.pop())
        texts = table["optional-dependencies"][extra]


def normal(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def main(arguments: list[str]) -> int:
    """Print the part; 1 if a root is not in the lock."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lock", type=Path)
    parser.add_argument("roots", nargs="*", help="names of packages")
    parser.add_argument("--project", type=Path, help="a pyproject.toml; its dependencies are roots")
    parser.add_argument("--extra", action="append", default=[], help="and those of this extra")
    given = parser.parse_args(arguments)
    lock = read_lock(given.lock.read_text())
    roots = given.roots + (declared(given.project, given.extra) if given.project else [])
    if missing := sorted({normal(root) for root in roots} - set(lock)):
        sys.stderr.write(f"not in {given.lock}: {', '.join(missing)}. Run 'make lock'.\n")
        return 1
    wanted = closure(lock, roots)
    for name in sorted(wanted & set(lock)):
        sys.stdout.writelines(f"{line}\n" for line in lock[name].lines)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
