"""What an error keeps alive."""

from __future__ import annotations

import traceback


def let_go(error: BaseException) -> None:
    """Drop the locals of frames that an error and its causes have left.

    An iterator of RocksDB among them keeps its directory locked, also after its engine was closed;
    and ``ExitStack`` ties errors that it raises again into a cycle, which only the garbage
    collector ends [tried: Python 3.11].
    """
    seen: set[int] = set()
    left: BaseException | None = error
    while left is not None and id(left) not in seen:
        seen.add(id(left))
        traceback.clear_frames(left.__traceback__)
        left = left.__cause__ or left.__context__
