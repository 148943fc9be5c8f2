"""Applications of another team, which may be seen and not read, beside those that may."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from state_lib.acls import Right, rights
from state_lib.apps.catalogue import catalogue
from state_lib.changelog.topics import topology_topic
from state_lib.cli import app as command
from state_lib.config import Settings
from state_lib.driver.claims import write_claim
from state_lib.drivers.members import living_drivers
from state_lib.errors import Unavailable
from state_lib.kafka import Kafka
from tests.support.apps import KV, app_of
from tests.support.environment import set_environment
from tests.support.secured import MECHANISM, Secured, secured_broker
from tests.support.waiting import until

TOPIC, GROUP, OURS = "topic-refused", "group-refused", "read"


def answers(kafka: Kafka) -> bool:
    try:
        return not living_drivers(kafka, "nobody")
    except Unavailable:
        return False


def settings_of(secured: Secured) -> Settings:
    return Settings.load(
        bootstrap_servers=secured.servers,
        kafka_security_protocol="SASL_SSL",
        kafka_sasl_mechanism=MECHANISM,
        kafka_sasl_username="operator",
        kafka_sasl_password="secret",
        kafka_ssl_ca=secured.ca,
        airflow=False,
    )


def prepared(secured: Secured, folder: Path) -> None:
    """Three applications, and a user who may read one of them."""
    secured.user("operator", "secret")
    for name in (TOPIC, GROUP, OURS):
        app = app_of(secured.plain, name, folder / name, [KV], [f"{name}-out"])
        app.create()
        write_claim(app.kafka, app.topology)
        app.close()
        wanted = rights(app.topology, "operator")
        if name == TOPIC:
            wanted = [Right("topic", topology_topic(name), ("DESCRIBE",))]
        granted = [r for r in wanted if not (name == GROUP and r.kind == "group")]
        secured.grant("operator", granted)


def test_what_may_not_be_read_is_shown_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with secured_broker(tmp_path / "broker") as secured:
        until(lambda: answers(secured.plain), 60)
        prepared(secured, tmp_path)
        settings = settings_of(secured)
        states = {one.app: one.state for one in catalogue(Kafka.of(settings))}
        assert states == {TOPIC: "not readable", GROUP: "not readable", OURS: "stopped"}
        set_environment(monkeypatch, settings)
        monkeypatch.setenv("COLUMNS", "300")
        for arguments in (("app", "list"), ("drivers",), ("status",)):
            seen = said(*arguments)
            assert seen.keys() == {TOPIC, GROUP, OURS}, arguments
            for name in (TOPIC, GROUP):
                assert seen[name]["state"] == "not readable"
                assert "User:operator" in json.dumps(seen[name]), arguments
                if arguments != ("app", "list"):
                    assert "User:operator" in seen[name]["why"]
                    assert seen[name]["next_step"] == "nothing, if it is another team's"
            assert seen[OURS]["state"] != "not readable"
            assert "User:operator" in CliRunner().invoke(command, arguments).stdout


def said(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(command, [*arguments, "--json"])
    found = json.loads(result.stdout)
    return {one["app"]: one for one in (found["streams"] if isinstance(found, dict) else found)}
