"""What a host tells one by one, for as long as it takes, and no longer than the host is there.

A restore of hours tells nothing for minutes, so no time bounds it. But a host that is stopped keeps
its connections, and whoever listens to it would wait for ever: so it is asked for nothing on a
connection of its own meanwhile (`state_lib.client.watch`).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from state_lib.client.watch import Asked, Watch
from state_lib.errors import Unavailable
from state_lib.protocol.wire import ALIVE

Event = dict[str, Any]
SILENT_S = 30.0
"""For how long a host may answer nobody while it is listened to."""
_AGAIN = {
    "restore-run": "holdfast restore run {app}",
    "past-fetch": "holdfast restore run {app} --to ...",
    "past-run": "holdfast restore run {app} --to ...",
    "repair-run": "holdfast repair changelog {app}",
    "digest": "holdfast digest {app}",
}


def silence(story: str, app: str, partition: int, host: str) -> Unavailable:
    """What is said of a host that has gone silent in the middle of a story."""
    task, again = f"{app}/{partition}", _AGAIN[story].format(app=app)
    return Unavailable(
        f"host {host} has not answered for {SILENT_S:g} s while {task} was waited for: it is "
        "stopped, hangs, or cannot be reached. What it has begun goes on there once it answers. "
        "Look at the host ('holdfast status', its log), resume it or start it again; then say "
        f"'{again}' again, which finds what is done or under way",
        host=host,
        task=task,
    )


def told(begin: Callable[[], Iterator[Event]], host: Asked, silent: Unavailable) -> Iterator[Event]:
    """What a host tells, until it ends; not that it is alive.

    A call of pyarrow that waits for an action's next result cannot be ended from outside. So a
    thread of its own waits there; it is left behind if the host is silent, and ends with the next
    thing that the host says, with the host, or with this process.

    Args:
        begin: asks the host; called in that thread.
        host: another connection to it; is closed in the end.
        silent: raised once the host has answered nobody for `SILENT_S`, or nothing has come for as
            long on a connection on which it had told that it is alive: what lies between has
            forgotten that connection, though the host answers on others.

    Raises:
        Unavailable: ``silent``.
        Others: whatever ``begin`` and its results raise.
    """
    heard: queue.SimpleQueue[Event | BaseException | None] = queue.SimpleQueue()
    left, most_s = threading.Event(), None
    listening = partial(_listen, begin, heard, left)
    with Watch(host, SILENT_S, partial(heard.put, silent)):
        threading.Thread(target=listening, name="listen", daemon=True).start()
        try:
            while (one := _next(heard, most_s, silent)) is not None:
                if one == ALIVE:
                    most_s = SILENT_S
                else:
                    yield one
        finally:
            left.set()


def _next(
    heard: queue.SimpleQueue[Event | BaseException | None],
    most_s: float | None,
    silent: Unavailable,
) -> Event | None:
    try:
        one = heard.get(timeout=most_s)
    except queue.Empty:
        raise silent from None
    if isinstance(one, BaseException):
        raise one
    return one


def _listen(
    begin: Callable[[], Iterator[Event]],
    heard: queue.SimpleQueue[Event | BaseException | None],
    left: threading.Event,
) -> None:
    try:
        for one in begin():
            if left.is_set():
                return
            heard.put(one)
    except BaseException as error:  # noqa: BLE001 - handed to whoever listens
        heard.put(error)
    else:
        heard.put(None)
