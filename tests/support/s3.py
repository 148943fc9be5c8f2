"""An S3 server on this machine."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from moto.server import ThreadedMotoServer
from s3fs import S3FileSystem

from state_lib.snapshots.storage import Storage


class Server:
    """An S3 server that can go away; what it holds stays."""

    def __init__(self) -> None:
        self._server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        self._server.start()
        self.port = self._server.get_host_and_port()[1]

    def stop(self) -> None:
        self._server.stop()

    def again(self) -> None:
        self._server = ThreadedMotoServer("127.0.0.1", self.port, verbose=False)
        self._server.start()

    def bucket(self, name: str) -> str:
        """The URL of a new bucket."""
        url = f"s3://{name}/some/prefix"
        Storage(url)._fs.mkdir(name)
        return url


@contextmanager
def s3_server() -> Iterator[Server]:
    """Running, and in this process's environment."""
    with pytest.MonkeyPatch.context() as patch:
        running = Server()
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{running.port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "nobody")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_MAX_ATTEMPTS", "1")  # botocore would sleep for seconds
        S3FileSystem.clear_instance_cache()  # one that another server's address was read into
        try:
            yield running
        finally:
            running.stop()
            S3FileSystem.clear_instance_cache()


def pull_the_plug_at(
    nth: int, method: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server goes away just before the nth transfer; later ones find it again, if it is."""
    passed = itertools.count(1)
    really = getattr(Storage, method)

    def transfer(self: Storage, *arguments: Any) -> Any:
        if next(passed) == nth:
            server.stop()
        return really(self, *arguments)

    monkeypatch.setattr(Storage, method, transfer)
