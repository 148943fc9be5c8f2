"""What a directory holds, while it changes."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

from state_lib.restore.facts import size_of


def test_what_vanishes_meanwhile_counts_as_nothing(tmp_path: Path) -> None:
    (tmp_path / "stays").write_bytes(b"12345")
    ended = threading.Event()

    def change() -> None:
        while not ended.is_set():
            for n in range(20):
                (tmp_path / "comes" / str(n)).mkdir(parents=True, exist_ok=True)
            shutil.rmtree(tmp_path / "comes")

    changing = threading.Thread(target=change)
    changing.start()
    try:
        assert {size_of([tmp_path]) for _ in range(500)} == {5}
    finally:
        ended.set()
        changing.join()
