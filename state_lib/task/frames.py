"""Frees what an error's traceback keeps alive."""

from __future__ import annotations

import traceback


def let_go(error: BaseException) -> None:
    """Clear the locals of frames in the tracebacks of an error and its causes.

    A RocksDB iterator among them would keep the directory locked, also after its engine was closed;
    and ``ExitStack`` makes a reference cycle of errors that it raises again, which only the garbage
    collector frees [tried: Python 3.11].
    """
    seen: set[int] = set()
    left: BaseException | None = error
    while left is not None and id(left) not in seen:
        seen.add(id(left))
        traceback.clear_frames(left.__traceback__)
        left = left.__cause__ or left.__context__
