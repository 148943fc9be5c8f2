"""docker/compose.yaml: what holds for every service, whatever it runs. Nothing is started."""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from state_lib.stack import jars, java
from tests.support.compose import (
    ALL,
    BROKERS,
    DOCKER,
    FILE,
    HOSTS,
    IMAGE,
    ONCE,
    OURS,
    ROOT,
    compose,
    environment,
    of_image,
    service,
    zone,
)

DOCUMENT = ROOT / "docs" / "how-to" / "docker.md"
SECRET = re.compile(r"password|secret|token|credential|(^|_)key($|_)|conn$", re.IGNORECASE)
AT_A_SECRET = re.compile(r"(cat )?/run/secrets/([a-z0-9-]+)")
NO_SECRETS = {
    "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": "/run/airflow/passwords.json",  # memory
}


def validate(file: Path) -> subprocess.CompletedProcess[str]:
    command = ["check-jsonschema", "--builtin-schema", "vendor.compose-spec", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_file_fits_the_schema_of_the_specification() -> None:
    done = validate(FILE)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("where", "key", "value"),
    [
        ("host-1", "healthchek", {"test": "true"}),
        ("kafka-1", "ports", "9092"),
        ("postgres", "depends_on", {"kafka-1": {"condition": "healthy"}}),
    ],
)
def test_and_the_schema_refuses_what_does_not_fit(
    where: str, key: str, value: Any, tmp_path: Path
) -> None:
    broken = yaml.safe_load(FILE.read_text())
    broken["services"][where][key] = value
    (tmp_path / "compose.yaml").write_text(yaml.safe_dump(broken))
    assert validate(tmp_path / "compose.yaml").returncode == 1


def test_every_service_is_there_and_nothing_is_declared_that_nobody_uses() -> None:
    services = compose()["services"]
    assert sorted(services) == sorted(ALL)
    mounted = {v.split(":")[0] for s in services.values() for v in s.get("volumes", ())}
    assert {one for one in mounted if one[0] != "."} == set(compose()["volumes"])
    assert all((DOCKER / one).exists() for one in mounted if one[0] == ".")
    used = {one for s in services.values() for one in s.get("secrets", ())}
    assert used == set(compose()["secrets"])
    for name, given in services.items():
        for other, how in given.get("depends_on", {}).items():
            wanted = "service_completed_successfully" if other in ONCE else "service_healthy"
            assert how == {"condition": wanted}, (name, other)


@pytest.mark.parametrize("name", ALL)
def test_every_service_is_confined_watched_and_started_again(name: str) -> None:
    given = service(name)
    uid, _, gid = given["user"].partition(":")
    assert int(uid) > 0 <= int(gid)
    assert given["cap_drop"] == ["ALL"]
    assert given["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "network_mode", "pid", "devices"} & set(given)
    assert given["logging"]["options"]["max-size"]
    if name in ONCE:
        assert given["restart"] == "on-failure:5"
    else:
        assert given["restart"] == "unless-stopped"
        assert given["healthcheck"]["test"][0] == "CMD"
        assert {"interval", "timeout", "retries", "start_period"} <= set(given["healthcheck"])


def test_what_keeps_data_has_a_volume_of_its_own() -> None:
    keeps = [*BROKERS, *HOSTS, "spark-worker-1", "spark-worker-2", "objects", "postgres"]
    volumes = [service(name)["volumes"] for name in keeps]
    assert all(len(one) == 1 for one in volumes)
    assert len({one[0].split(":")[0] for one in volumes}) == len(keeps)


def test_zones_have_a_broker_and_a_host_each() -> None:
    zones = ["zone-a", "zone-b", "zone-c"]
    assert [zone(name) for name in BROKERS] == [zone(name) for name in HOSTS] == zones
    assert [environment(name)["KAFKA_BROKER_RACK"] for name in BROKERS] == zones


def test_an_audit_finds_cores_and_memory_beside_two_streams() -> None:
    options = environment("spark-master")["SPARK_MASTER_OPTS"]
    name, _, each = options.partition("=")
    assert name == "-Dspark.deploy.defaultCores"
    workers = [service(f"spark-worker-{i}")["command"] for i in (1, 2)]
    cores = [int(command[command.index("--cores") + 1]) for command in workers]
    memory = [command[command.index("--memory") + 1] for command in workers]
    assert sum(cores) >= 3 * int(each)
    assert memory == ["3g", "3g"], "executors of 1 GiB, spread over the workers"


def test_pages_are_on_loopback_and_documented() -> None:
    published = [p for s in compose()["services"].values() for p in s.get("ports", ())]
    split = [one.split(":") for one in published]
    assert {address for address, _, _ in split} == {"127.0.0.1"}
    outside = [port for _, port, _ in split]
    assert len(set(outside)) == len(outside)
    text = DOCUMENT.read_text()
    assert set(outside) == set(re.findall(r"http://127\.0\.0\.1:(\d+)", text))


def test_no_secret_is_in_a_file() -> None:
    for name, given in compose()["services"].items():
        for variable, value in given.get("environment", {}).items():
            if SECRET.search(variable) and NO_SECRETS.get(variable) != value:
                found = AT_A_SECRET.fullmatch(value)
                assert found, (name, variable)
                assert found[2] in given["secrets"], (name, variable)
        for secret in re.findall(r"/run/secrets/([a-z0-9-]+)", str(given)):
            assert secret in given["secrets"], (name, secret)
    assert {f"secrets/{one}" for one in compose()["secrets"]} == {
        one["file"] for one in compose()["secrets"].values()
    }
    ignored = (DOCKER / ".gitignore").read_text().split()
    assert {"/.env", "/secrets/"} <= set(ignored)


def test_versions_are_those_of_the_locks() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"holdfast:{project['version']}" == OURS
    kafka = next(jar for jar in jars.read_lock() if jar.artifact == "kafka_2.13")
    assert {service(name)["image"] for name in BROKERS} == {f"apache/kafka:{kafka.version}"}
    # Spark and Airflow come from requirements.lock: no image of theirs could be of another version.
    images = {one["image"] for one in compose()["services"].values()}
    assert not [one for one in images if one.startswith(("apache/spark", "apache/airflow"))]
    assert len(of_image()) == 12
    assert all(re.fullmatch(r"[a-z/-]+:v?\d+(\.\d+)+(-[a-z]+)?", one) for one in images)
    built = {s["image"] for s in compose()["services"].values() if "build" in s}
    assert built == {OURS, "holdfast-objects:0.1.0"}


def test_the_image_has_a_python_and_a_java_that_fit() -> None:
    text = (IMAGE / "Dockerfile").read_text()
    python = re.search(r"^FROM python:3\.(\d+)-slim-bookworm AS base$", text, re.MULTILINE)
    assert python
    assert 11 <= int(python[1]) <= 13  # requires-python, and the markers of the lock
    package = re.search(r"openjdk-(\d+)-jre-headless", text)
    assert package
    assert int(package[1]) >= java.LEAST_VERSION
    assert package[0] in java.DEBIAN_PACKAGES
