"""Cluster mode through the provider's hook: a scripted spark-submit, a small ResourceManager."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import structlog

from holdfast_airflow.adoption import find_driver
from holdfast_airflow.errors import SubmissionUnclear
from holdfast_airflow.hooks.cluster import Submission, submit
from holdfast_airflow.hooks.spark import SparkTarget
from holdfast_airflow.triggers.watch import Watch
from state_lib.config import Settings
from state_lib.drivers.process import DriverProcess
from state_lib.errors import ConfigurationError, Unavailable
from tests.dags.conftest import Connect
from tests.support.airflow_home import SCRIPTED
from tests.support.small_http import Server, serving

ID = "application_1700000000000_0042"


class ResourceManager(Server):
    """Answers for one application, whose state is `state`."""

    state = "RUNNING"

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        del method, body
        known = path == f"/ws/v1/cluster/apps/{ID}"
        return 200 if known else 404, {"app": {"state": self.state, "finalStatus": "UNDEFINED"}}


@pytest.fixture
def manager(
    connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ResourceManager]:
    monkeypatch.setenv("SCRIPTED", str(tmp_path))
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{SCRIPTED}")
    with serving(ResourceManager()) as server:
        extra = {
            "deploy-mode": "cluster",
            "spark-binary": "spark2-submit",
            "yarn_resourcemanager_webapp_address": server.url,
        }
        connect("yarn", "cluster", extra=extra)
        yield server


def target() -> SparkTarget:
    settings = Settings.load(
        token="abc",
        bootstrap_servers="kafka.example:9092",
        kafka_security_protocol="SASL_PLAINTEXT",
        kafka_sasl_mechanism="SCRAM-SHA-512",
        kafka_sasl_username="flights",
        kafka_sasl_password="hush",
        schema_registry_url="https://registry:8081",
        schema_registry_username="flights",
        schema_registry_password="quiet",
        schema_registry_ssl_ca="/etc/registry/ca.pem",
        schema_registry_fallback="/etc/registry/lost.json",
    )
    return SparkTarget("cluster", "flights", settings, env={"HOLDFAST_TOKEN_FILE": "/run/token"})


@pytest.mark.usefixtures("manager")
def test_the_cluster_gets_settings_and_an_identity_but_no_token(tmp_path: Path) -> None:
    process, submission = submit(target(), "/jobs/flights.py")
    assert submission == Submission("cluster", ID)
    assert (process.here, process.alive()) == (False, None)
    given = (tmp_path / "submitted").read_text().splitlines()
    conf = dict(b.split("=", 1) for a, b in pairwise(given) if a == "--conf")
    env = {k.rpartition(".")[2]: v for k, v in conf.items() if k.startswith("spark.yarn.appMaster")}
    assert env["HOLDFAST_DRIVER_ID"] == process.id
    assert env["HOLDFAST_BOOTSTRAP_SERVERS"] == "kafka.example:9092"
    assert env["HOLDFAST_TOKEN_FILE"] == target().env["HOLDFAST_TOKEN_FILE"]
    assert env["HOLDFAST_KAFKA_SASL_USERNAME"] == "flights"
    assert not {"HOLDFAST_TOKEN", "HOLDFAST_HOME", "HOLDFAST_DAGS_DIR"} & set(env)
    assert env["HOLDFAST_SCHEMA_REGISTRY_URL"] == "https://registry:8081"
    assert "/etc/registry" not in "\n".join(given), "paths of this machine mean nothing there"
    for secret in ("hush", "quiet"):
        assert secret not in "\n".join(given), "anybody may see a command line"
    assert conf["spark.yarn.submit.waitAppCompletion"] == "false"
    assert "spark.driver.host" not in conf
    assert given[given.index("--deploy-mode") + 1] == "cluster"
    assert given[-1] == "/jobs/flights.py"


@pytest.mark.parametrize(
    ("state", "active"), [("ACCEPTED", True), ("RUNNING", True), ("KILLED", False)]
)
def test_the_cluster_says_whether_a_driver_lives(
    manager: ResourceManager, state: str, active: bool
) -> None:
    manager.state = state
    submission = Submission("cluster", ID)
    assert submission.active() is active
    watch = Watch("flights", {}, submission.to_json())
    assert watch._active_in_cluster() is active
    watch.close()


@pytest.mark.usefixtures("manager")
def test_a_cluster_that_does_not_say_leaves_it_to_kafka() -> None:
    watch = Watch("flights", {}, {"conn_id": "cluster", "id": "application_0_0"})
    assert watch._active_in_cluster() is None
    watch.close()


@pytest.mark.usefixtures("manager")
def test_a_submission_that_fails_may_be_tried_again(tmp_path: Path) -> None:
    (tmp_path / "refuses").touch()
    with pytest.raises(Unavailable, match=r"(?s)yarn did not take the driver of 'flights'.*queue"):
        submit(target(), "/jobs/flights.py")


@pytest.mark.usefixtures("manager")
@pytest.mark.parametrize(("how", "why"), [("mumbles", "0xff"), ("silent", "application id")])
def test_what_may_have_been_submitted_is_for_a_person(tmp_path: Path, how: str, why: str) -> None:
    """A retry could submit another one."""
    (tmp_path / how).touch()
    with pytest.raises(SubmissionUnclear, match=rf"yarn may have taken .*'flights'.*{why}.*clear"):
        submit(target(), "/jobs/flights.py")
    assert (tmp_path / "submitted").exists()


def test_a_submission_that_the_provider_refuses_is_for_a_person(connect: Connect) -> None:
    connect("yarn", "cluster", extra={"deploy-mode": "cluster"})
    why = "'cluster'.*yarn_resourcemanager_webapp_address.*Admin, Connections"
    with pytest.raises(ConfigurationError, match=why):
        submit(target(), "/jobs/flights.py")


@pytest.mark.parametrize(("state", "lives"), [("ACCEPTED", True), ("KILLED", False)])
def test_a_driver_that_waits_for_the_cluster_is_adopted(
    manager: ResourceManager, settings: Settings, state: str, lives: bool
) -> None:
    """However long ago it was submitted: Kafka does not know it yet."""
    manager.state = state
    known = DriverProcess("submitted", "accepted", "yarn", 0, "", 0)
    submission = Submission("cluster", ID).to_json()
    job, log = "/jobs/accepted.py", structlog.get_logger("task")
    found = find_driver(settings, "accepted", known, job, log, submission=submission)
    assert found.process == (known if lives else None)
