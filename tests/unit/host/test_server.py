"""What a host makes of its settings. No Kafka."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from state_lib.config import Settings
from state_lib.errors import PortInUse
from state_lib.host.server import StateHost
from tests.support.hosts import address

Make = Callable[..., StateHost]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """``make(setting=…)``: a host of these settings, not started."""
    made: list[StateHost] = []

    def host(**more: object) -> StateHost:
        given = {"home": tmp_path, "bootstrap_servers": "127.0.0.1:1", "hosts": str(address())}
        made.append(StateHost(Settings.load(**given | more), "host-1"))
        return made[-1]

    yield host
    for one in made:
        one.tasks.openers.stop()


def test_settings_of_restores_reach_its_tasks(make: Make) -> None:
    url = "file:///elsewhere"
    host = make(
        num_restore_workers=3,
        restore_batch_size=7,
        restore_mode="orchestrated",
        snapshots_url=url,
    )
    context = host.tasks.context
    assert context.pool is not None
    assert context.pool.size == 3
    restore = context.restore
    assert (restore.batch_size, restore.mode, restore.snapshots_url) == (7, "orchestrated", url)


def test_no_workers_is_a_setting_too(make: Make) -> None:
    pool = make(num_restore_workers=0).tasks.context.pool
    assert pool is None or pool.size == 0


def test_bounds_of_memory_reach_rocksdb(make: Make) -> None:
    options = make(block_cache_bytes="32MiB", write_buffer_bytes=16 << 20).tasks.context.options
    assert options.block_cache_bytes == 32 << 20
    assert options.write_budget_bytes == 16 << 20


def test_a_host_that_cannot_start_holds_nothing(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its port was taken after it had looked, or a package of its extra is missing."""
    host = make()
    with socket.socket() as taken:
        taken.bind((host.address.host, host.address.flight_port))
        taken.listen()
        with pytest.raises(PortInUse, match="HOLDFAST_HOSTS"):
            host.start()
    assert host.tasks.context.stopping.is_set()
    with pytest.raises(RuntimeError, match="shutdown"):
        host.tasks.openers._pool.submit(print)

    other = make()
    monkeypatch.setitem(sys.modules, "state_lib.host.http", None)
    with pytest.raises(ModuleNotFoundError):
        other.start()
    assert other.tasks.context.stopping.is_set()
