"""Compiles the programs in java/, once and beforehand.

``java Count.java`` would compile at every start, and that time is not a contender's.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from state_lib.stack.java import java_binary

SOURCES = Path(__file__).parents[1] / "java"


def compiled(name: str, libraries: Sequence[Path], into: Path) -> Path:
    """Compile ``java/<name>.java`` against ``libraries``; returns the folder of its classes.

    Raises:
        RuntimeError: with what the compiler says.
    """
    source, target = SOURCES / f"{name}.java", into / f"{name}-classes"
    compiler = [java_binary(), "-m", "jdk.compiler/com.sun.tools.javac.Main", "-nowarn"]
    options = ["-cp", os.pathsep.join(map(str, libraries)), "-d", str(target), str(source)]
    done = subprocess.run([*compiler, *options], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(
            f"{source} was not compiled: {done.stderr or done.stdout}; a JDK is needed, not only a "
            "runtime"
        )
    return target
