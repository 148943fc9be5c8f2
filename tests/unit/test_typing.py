"""What a user's type checker says of a job and of its tests: nothing; and of mistakes: each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

USERS = sorted((Path(__file__).parents[1] / "typing").glob("*.py"))


def test_jobs_and_their_tests_have_no_type_errors(tmp_path: Path) -> None:
    """As a user checks them: strictly, and with none of our settings.

    Strictly, a ``type: ignore`` that nothing needs is an error: so are mistakes seen to be told.
    """
    assert [path.name for path in USERS] == ["user_job.py", "user_mistakes.py", "user_tests.py"]
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\nstrict = true\nfollow_imports = silent\n")
    command = [sys.executable, "-m", "mypy", "--config-file", str(config), *map(str, USERS)]
    cache = ["--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run(
        [*command, *cache], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
