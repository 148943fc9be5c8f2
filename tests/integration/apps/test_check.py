"""`holdfast check` against real brokers and hosts."""

from __future__ import annotations

from typing import Any

import pytest

from state_lib.changelog.admin import set_topic_config
from tests.support.apps import App
from tests.support.cluster import Cli, Cluster


@pytest.fixture
def holdfast(
    cluster: Cluster, applications: tuple[App, App], monkeypatch: pytest.MonkeyPatch
) -> Cli:
    monkeypatch.setenv("HOLDFAST_REPLICATION_FACTOR", "1")
    return Cli("check", applications[0], cluster, monkeypatch)


@pytest.fixture
def app(cluster: Cluster, applications: tuple[App, App]) -> App:
    """One that ran, on both hosts."""
    app = applications[0]
    epoch = cluster.start(app)
    for p in range(app.topology.partitions):
        cluster.commit(app, epoch, p, b"1")
    return app


def bad(found: Any) -> dict[tuple[str, str], str]:
    return {(v["check"], v["subject"]): v["level"] for v in found["verdicts"] if v["level"] != "ok"}


def test_a_changelog_that_would_delete_fails(app: App, holdfast: Cli) -> None:
    found = holdfast.json(app.name)
    assert (found["level"], bad(found)) == ("ok", {})
    topic = app.topic("kv")
    set_topic_config(app.kafka.admin(), topic, "cleanup.policy", "compact,delete")
    set_topic_config(app.kafka.admin(), app.topic("kv"), "delete.retention.ms", "86400000")
    found = holdfast.json(app.name, code=2)
    assert bad(found) == {("cleanup-policy", topic): "fail", ("tombstones", topic): "warn"}
    shown = holdfast(app.name, code=2)
    assert "compact,delete: records are deleted by age" in shown
    assert "docs/runbook/cleanup-policy.md" in shown
    assert f"holdfast repair config {app.name}" in shown

    set_topic_config(app.kafka.admin(), topic, "cleanup.policy", "compact")
    assert bad(holdfast.json(app.name, code=1)) == {("tombstones", topic): "warn"}


def test_what_cannot_be_checked_is_no_mere_warning(app: App, holdfast: Cli) -> None:
    found = holdfast.json(f"{app.name}-x", code=2)
    assert found["level"] == "fail"
    assert found["error"]["code"] == "not-found"
    assert app.name in found["error"]["message"]
    assert "there is no application" in holdfast(f"{app.name}-x", code=2)
    assert holdfast.json("no/name", code=2)["error"]["code"] == "invalid-name"
