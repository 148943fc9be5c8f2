"""A host lifts a retention that would lose live windows, whoever lowers it and however often."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from state_lib.changelog import log as changelog_log
from state_lib.changelog.admin import set_topic_config, topic_configs
from state_lib.client.flight import FlightHostClient
from state_lib.config import Settings
from state_lib.host import server
from state_lib.host.retention import RetentionWatch
from state_lib.keys import window_key
from tests.integration.conftest import MakeApp
from tests.support.apps import HOUR, NOON, WIN, batch
from tests.support.hosts import address, claim, publish
from tests.support.waiting import until

TOKEN = "only-for-tests"


def test_it_looks_again_and_again(
    make_app: MakeApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No driver commits: an application is idle, and its windows grow old all the same."""
    monkeypatch.setattr(server, "RetentionWatch", partial(RetentionWatch, every_s=0.2))
    app, at, lifted = make_app([WIN]), address(), []
    admin, topic = app.kafka.admin(), app.topic("win")

    def lift(*arguments: Any) -> None:
        lifted.append(arguments[1:])
        set_topic_config(*arguments)

    monkeypatch.setattr(changelog_log, "set_topic_config", lift)
    settings = Settings.load(
        home=tmp_path / "home",
        bootstrap_servers=str(app.kafka.properties["bootstrap.servers"]),
        hosts=f"{at.id}={at.host}:{at.flight_port}/{at.http_port}",
        token=TOKEN,
    )
    host = server.StateHost(settings, at.id)
    host.start()
    try:
        epoch = publish(app)
        with closing(FlightHostClient(at, TOKEN)) as client:
            claim(client, app, epoch)
            with client.exchange(app.name, 0, epoch, 1) as exchange:
                keys = pa.array([window_key(b"a", NOON)], pa.binary())
                exchange.put("win", keys, pa.array([b"1"], pa.binary()), pa.array([NOON]))
                exchange.commit(batch(exchange.marker).header)
        assert set(lifted) == {(topic, "retention.ms", "-1")}, "the commit looked, too"
        for _ in range(3):  # a broker that is late tells what was before: it is lifted twice then
            before = len(lifted)
            set_topic_config(admin, topic, "retention.ms", str(30 * HOUR))
            until(lambda n=before: len(lifted) > n, 30, f"lifted more than {before} times")  # type: ignore[misc]
            until(lambda: topic_configs(admin, [topic])[topic]["retention.ms"] == "-1", 30)
    finally:
        host.stop()
