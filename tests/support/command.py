"""The command ``holdfast``, as a process of its own: in this one it would set up logging anew."""

from __future__ import annotations

import os
import subprocess
import sys

CODE = "from state_lib.cli import main; main()"


def holdfast(*words: str, code: int = 0) -> str:
    """Both of its streams, after it ended with this code; of success standard output alone."""
    run = [sys.executable, "-c", CODE, *words]
    env = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(run, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stdout + done.stderr
