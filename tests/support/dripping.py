"""Somebody who answers slowly for ever, and somebody who never does."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress


@contextmanager
def dripping() -> Iterator[int]:
    """The port of one; a byte now and then, so that no read is too late."""
    ended = threading.Event()
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        server.settimeout(0.1)
        taken: list[socket.socket] = []

        def drip() -> None:
            while not ended.wait(0.1):
                with suppress(TimeoutError):
                    taken.append(server.accept()[0])
                for one in taken:
                    try:
                        one.send(b"H")
                    except OSError:
                        continue

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            ended.set()
            thread.join()
            for one in taken:
                one.close()


@contextmanager
def silent(port: int = 0) -> Iterator[int]:
    """The port of one who takes connections and what is sent, and says nothing."""
    with closing(socket.create_server(("127.0.0.1", port), backlog=128)) as server:
        yield server.getsockname()[1]
