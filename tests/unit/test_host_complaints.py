"""What a host says of its readiness, in whatever shape it comes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from state_lib.config import Settings
from state_lib.drivers.hosts import complaints


class Host(ThreadingHTTPServer):
    body = b""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)


class Answer(BaseHTTPRequestHandler):
    server: Host

    def do_GET(self) -> None:
        self.send_response(503)
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def host() -> Iterator[Host]:
    with Host() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"[]", "does not answer (AttributeError)"),
        (b'{"not_ready": 5}', "does not answer (TypeError)"),
        (b'{"not_ready": {}, "waiting": [1]}', "does not answer (TypeError)"),
        (b"<html>", "does not answer (JSONDecodeError)"),
        (b'{"not_ready": {"app/0": "restores"}}', "not open: app/0: restores"),
        (b'{"not_ready": {"other/0": "restores"}}', None),
        (b'{"not_ready": {}, "waiting": 3}', "has 3 tasks that are not open"),
    ],
)
def test_any_answer_is_a_complaint_or_none(host: Host, body: bytes, says: str | None) -> None:
    host.body = body
    port = host.server_address[1]
    settings = Settings.load(hosts=f"host-1=127.0.0.1:1/{port}")
    found = complaints(settings, "app")
    if says is None:
        assert found == ()
    else:
        (one,) = found
        assert says in one
