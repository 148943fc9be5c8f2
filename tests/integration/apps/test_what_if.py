"""`holdfast what-if` against real brokers and hosts: what is measured, and what follows."""

from __future__ import annotations

import pytest

from state_lib.gathering.measures import restore_rates
from state_lib.host.restore_records import RestoreRecords
from tests.support.apps import App
from tests.support.cluster import Cli, Cluster


def test_other_intervals(
    cluster: Cluster,
    applications: tuple[App, App],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: object,
) -> None:
    app = applications[0]
    epoch = cluster.start(app)
    for p in range(app.topology.partitions):
        cluster.commit(app, epoch, p, b"1")
    monkeypatch.setenv("HOLDFAST_HOME", f"{tmp_path}/home")
    holdfast = Cli("what-if", app, cluster, monkeypatch)
    found = holdfast.json(app.name, "--snapshots", "1 hour", "--snapshots", "1 day", "--keep", "3")
    (store,) = found["stores"]
    assert (store["live"], store["partitions"], store["window_ms"]) == (3, 3, 0)
    assert store["per_s"] == 0
    assert store["record_bytes"] == 2
    assert found["rates"]["seen"] == 0
    assert [c["snapshot_every_ms"] for c in found["choices"]] == [3_600_000, 86_400_000]
    assert all(c["outcome"]["from_snapshot_s"] > 0 for c in found["choices"])
    shown = holdfast(app.name, "--deletes", "1 day")
    assert "a benchmark: none was seen yet" in shown
    assert "from changelog" in shown
    assert "is not a duration" in holdfast(app.name, "--snapshots", "soon", code=1)
    assert "there is no application" in holdfast(f"{app.name}-x", code=1)


def test_rates_come_from_what_hosts_told(
    applications: tuple[App, App], cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = applications[0]
    cluster.start(app)
    records = RestoreRecords(app.kafka, "host-1")
    at = iter((1000, 6000))
    monkeypatch.setattr("state_lib.host.restore_records.now_ms", lambda: next(at))
    records.on_restore_start(f"{app.name}/0", "kv", 0, 100_000)
    records.on_restore_end(f"{app.name}/0", "kv", 100_000)
    assert records._producer is not None
    assert records._producer.flush(30) == 0
    rates = restore_rates(app.kafka, app.name)
    assert (rates.seen, rates.full_records_per_s) == (1, 20_000)
