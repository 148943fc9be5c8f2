"""A process whose snapshot storage is a small tmpfs: full, then read-only; prints JSON.

``python -m tests.support.bad_storage MOUNTED_DIRECTORY WORK_DIRECTORY``, in a mount namespace.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from state_lib.errors import StorageUnavailable
from state_lib.logs import configure_logging
from state_lib.snapshots.listing import list_snapshots, verify
from state_lib.snapshots.prune import Retention, prune
from state_lib.snapshots.write import write_snapshot
from tests.support.snapshots import Source


def main(mounted: str, work: str) -> None:
    configure_logging()  # standard output is ours
    url = f"file://{mounted}"
    source = Source(Path(work))
    seen: dict[str, Any] = {}

    def state() -> list[Any]:
        return [
            [m.marker.batch_number, verify(m, deep=True)] for m in list_snapshots(url, "app", 0)
        ]

    def refusal(what: Any) -> str | None:
        try:
            what()
        except StorageUnavailable as error:
            return error.message
        return None

    def snapshot() -> None:
        write_snapshot(source.request(url))

    source.write({b"%05d" % i: os.urandom(100) for i in range(10_000)})
    snapshot()
    ballast = Path(mounted) / "ballast"
    ballast.write_bytes(bytes(4 << 20))
    source.write({b"more %05d" % i: os.urandom(100) for i in range(30_000)})
    seen["full"], seen["while full"] = refusal(snapshot), state()
    ballast.unlink()
    seen["after full"] = refusal(snapshot), state()

    source.write({b"x": b"1"})
    subprocess.run(["mount", "-o", "remount,ro", mounted], check=True)
    seen["read-only"], seen["while read-only"] = refusal(snapshot), state()
    seen["prune"] = refusal(lambda: prune(url, "app", 0, Retention(1)))
    subprocess.run(["mount", "-o", "remount,rw", mounted], check=True)
    seen["after read-only"] = refusal(snapshot), state()
    source.stores.close()
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
