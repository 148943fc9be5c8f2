"""What a user's type checker says of a job: nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

JOB = Path(__file__).parents[1] / "typing" / "user_job.py"


def test_a_job_has_no_type_errors(tmp_path: Path) -> None:
    """As a user checks it: strictly, and with none of our settings."""
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\nstrict = true\nfollow_imports = silent\n")
    command = [sys.executable, "-m", "mypy", "--config-file", str(config), str(JOB)]
    cache = ["--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run(
        [*command, *cache], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
