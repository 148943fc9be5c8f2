"""Hosts that are killed and lose their disks while no driver runs: they mend themselves."""

from __future__ import annotations

import os
import shutil
import signal

import pytest

from tests.chaos.check import check
from tests.chaos.cluster import Cluster
from tests.chaos.conftest import Events
from tests.support.waiting import until

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]


def test_hosts_without_disk_and_driver(cluster: Cluster, events: Events, app: str) -> None:
    events.more(4000)
    driver = cluster.driver(app, events.topic)
    check(cluster.settings, app, events.topic)
    assert driver.stop() == 0
    for host in ("host-1", "host-2"):
        pid = cluster.pid(host)
        os.kill(pid, signal.SIGSTOP)  # so that it writes nothing any more
        shutil.rmtree(cluster.settings.home / "state" / host)
        os.kill(pid, signal.SIGKILL)
        until(
            lambda host=host, pid=pid: (  # type: ignore[misc]
                (now := cluster.stack.status()[host]).pid != pid and now.health == "healthy"
            ),
            60,
            f"{host} ready",
        )
    check(cluster.settings, app, events.topic, timeout_s=1)  # ready: it answers at once
    assert len(list((cluster.settings.home / "state").glob(f"*/{app}/?"))) == 4

    events.more(2000)
    driver = cluster.driver(app, events.topic)
    check(cluster.settings, app, events.topic)
    assert driver.stop() == 0
