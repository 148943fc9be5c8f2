"""``python -m state_lib.stack [SET ...]``: JVM artifacts, a Java, a class archive for it.

``make setup`` runs it, so that the first ``holdfast up`` has nothing to download.
"""

from __future__ import annotations

import sys

from rich.console import Console
from rich.progress import Progress

from state_lib.config import Settings
from state_lib.errors import ConfigurationError, HoldfastError
from state_lib.stack import archiving, jars, java

# Not `streams`: 94 MB that only benchmarks and interoperability tests need; they fetch it. Nor
# `registry`: 109 MB that only tests need, which have no network; `make setup` names it.
NEEDED = ("kafka", "spark")


def main(names: list[str]) -> int:
    """Fetch the named sets, or what everybody needs; return the exit code."""
    console = Console(stderr=True)
    try:
        for name in names or NEEDED:
            with Progress(
                console=console, transient=True, disable=not console.is_terminal
            ) as progress:
                task = progress.add_task(f"JVM artifacts: {name}", total=None)
                ready = jars.fetch(
                    name,
                    report=lambda done, total, task=task, progress=progress: progress.update(  # type: ignore[misc]
                        task, completed=done, total=total
                    ),
                )
            console.print(f"setup: {len(ready)} JVM artifacts for {name}")
        console.print(f"setup: Java in {java.java_home(fetch=True)}")
        if not names:
            _archive(console)
    except HoldfastError as error:
        console.print(f"setup: {error.message}", style="red", markup=False, highlight=False)
        return 1
    return 0


def _archive(console: Console) -> None:
    """With it drivers start faster; without it they start."""
    try:
        settings = Settings.load()
    except ConfigurationError as error:  # a setup needs none of them
        said = f"setup: no class archive was made: {error.message}"
        console.print(said, style="yellow", markup=False, highlight=False)
        return
    if not archiving.is_missing(settings):
        return
    console.print("setup: class archive for Spark's JVM, a minute")
    if trouble := archiving.make():
        console.print(f"setup: {trouble}", style="yellow", markup=False, highlight=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
