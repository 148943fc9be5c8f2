"""Print how uv shall bring files from its cache into the environment.

Hard links take no space and a tenth of the time, but need one file system; across two, uv warns on
every run and copies. Usage: ``link_mode.py UV ENVIRONMENT``.
"""

import subprocess
import sys
from pathlib import Path


def _existing(path: Path) -> Path:
    """The path, or its nearest ancestor that exists: a cache may not have been made yet."""
    while not path.exists():
        path = path.parent
    return path


uv, environment = sys.argv[1:]
cache = subprocess.run([uv, "cache", "dir"], capture_output=True, text=True, check=True).stdout
same = _existing(Path(cache.strip())).stat().st_dev == Path(environment).stat().st_dev
print("hardlink" if same else "copy")
