"""What a host says of its readiness, in whatever shape it comes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from state_lib.config import Settings
from state_lib.drivers.hosts import TIMEOUT_S, complaints
from state_lib.stack.ports import free_port
from tests.support.dripping import dripping
from tests.support.small_http import Server, serving
from tests.support.waiting import SLOWNESS


class Host(Server):
    body = b""

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        del method, path, body
        return 503, self.body


@pytest.fixture
def host() -> Iterator[Host]:
    with serving(Host()) as server:
        yield server


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
    settings = Settings.load(hosts=f"host-1=127.0.0.1:1/{host.port}")
    found = complaints(settings, "app")
    if says is None:
        assert found == ()
    else:
        (one,) = found
        assert says in one


def test_hosts_that_drip_or_are_away_are_not_waited_for(host: Host) -> None:
    """A byte now and then keeps every read alive; others are asked meanwhile."""
    host.body = b'{"not_ready": {"app/0": "restores"}}'
    with dripping() as one, dripping() as two:
        ports = {"slow-1": one, "slow-2": two, "away": free_port(), "well": host.port}
        hosts = ",".join(f"{name}=127.0.0.1:{free_port()}/{p}" for name, p in ports.items())
        settings = Settings.load(hosts=hosts)
        began = time.monotonic()
        found = complaints(settings, "app")
        assert time.monotonic() - began < TIMEOUT_S + 2 * SLOWNESS
    assert [text.split()[1] for text in found] == list(ports)
    assert all("(TimeoutError)" in text for text in found[:2])
    assert "app/0: restores" in found[3]
