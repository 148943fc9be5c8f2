"""Back in time with a supervised driver: hosts and drivers killed on the way, audited."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from state_lib.apps.past import carry_out, plan
from state_lib.changelog.claims import topology_of
from state_lib.client import stories
from state_lib.client.snapshots import SnapshotClient
from state_lib.config import Settings
from state_lib.digests.compare import compare
from state_lib.errors import Unavailable
from state_lib.kafka import Kafka
from state_lib.protocol.wire import BEAT_S
from tests.chaos.check import check
from tests.chaos.cluster import Cluster
from tests.chaos.conftest import Events
from tests.chaos.supervisor import Supervisor

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]
OF_HOSTS = ["past.before_begin", "past.after_begin", "past.after_chunk", "past.after_marker"]
SILENT_S = BEAT_S + 3.0
"""A host that is only busy says so before."""


def test_a_supervised_stream_goes_back(
    cluster: Cluster, events: Events, app: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = cluster.settings
    events.more(3000)
    supervisor = Supervisor(cluster, app, events.topic)
    try:
        supervisor.until("committing")
        check(settings, app, events.topic)
        to = SnapshotClient(settings, app).savepoint().id
        events.more(5000)
        supervisor.until_caught_up()
        check(settings, app, events.topic)

        carry_out(settings, plan(settings, app, to))
        assert supervisor.until("restart").details["failures"] == 0, "a handover is no failure"
        cluster.arm("exchange.after_commit=kill-jvm")
        events.more(1000)
        cluster.wait_fired("exchange.after_commit")
        supervisor.until("crashed")
        supervisor.until("committing")
        check(settings, app, events.topic)
        _equals_its_changelogs(settings, app)

        for point in OF_HOSTS:
            supervisor.until_caught_up()
            cluster.arm(f"{point}=kill")
            cluster.go_back(app, to)
            assert (cluster.fired / point).exists(), point
            supervisor.until("restart")
            supervisor.until("committing")
            check(settings, app, events.topic)

        supervisor.until_caught_up()
        with monkeypatch.context() as hasty:
            hasty.setattr(stories, "SILENT_S", SILENT_S)
            _hosts_hang_on_the_way_back(cluster, app, to)
        cluster.go_back(app, to)
        supervisor.until("restart")
        supervisor.until("committing")
        check(settings, app, events.topic)
        _equals_its_changelogs(settings, app)
        assert "superseded" not in supervisor.names()
        assert "gave_up" not in supervisor.names()
    finally:
        supervisor.close()


def _hosts_hang_on_the_way_back(cluster: Cluster, app: str, to: str) -> None:
    """They go on once they can; nobody waits for them until then."""
    pids, held = [cluster.pid(f"host-{i}") for i in (1, 2)], "past.before_marker"

    def hang() -> None:
        cluster.wait_fired(held)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)

    said = f"has not answered for {SILENT_S:g} s.*restore run {app} --to"
    cluster.arm(f"{held}=sleep:5")
    hanging = threading.Thread(target=hang)
    hanging.start()
    try:
        with pytest.raises(Unavailable, match=said):
            carry_out(cluster.settings, plan(cluster.settings, app, to))
    finally:
        hanging.join()
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def _equals_its_changelogs(settings: Settings, app: str) -> None:
    kafka = Kafka.of(settings)
    hosts, token = settings.host_addresses, settings.read_token()
    found = compare(kafka, topology_of(kafka, app), hosts, token)
    assert not found.failed, [t.error for t in found.failed]
    assert not found.alarms, [t.different for t in found.alarms]
