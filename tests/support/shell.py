"""One shell, as somebody who follows a page has it: variables, folder and jobs stay."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

ENDING_S = 30


class Shell:
    """A bash that is given one command after the other; nobody sits at it."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._bash = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it with all that it has in the background."""
        found = psutil.Process(self._bash.pid).children(recursive=True)
        for process in found:
            process.terminate()
        for process in psutil.wait_procs(found, ENDING_S)[1]:
            process.kill()
        self._bash.kill()
        self._bash.wait()

    def run(self, command: str) -> tuple[int, str]:
        """A command's exit code, and what it wrote to either stream."""
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        mark = uuid.uuid4().hex
        self._bash.stdin.write(f'{{ {command}\n}} </dev/null 2>&1\necho "{mark} $?"\n')
        self._bash.stdin.flush()
        said: list[str] = []
        for line in self._bash.stdout:
            before, found, code = line.partition(mark)
            said.append(before)
            if found:
                return int(code), "".join(said)
        raise AssertionError(f"the shell has ended: {''.join(said)}")


def environment_of(python: str, **more: str) -> dict[str, str]:
    """That of somebody who has activated the environment of a Python, and set nothing of ours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST")}
    path = os.pathsep.join((str(Path(python).parent), os.environ["PATH"]))
    return {**kept, "PATH": path, "COLUMNS": "200", **more}
