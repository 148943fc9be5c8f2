"""docker/compose.yaml against the code: settings, addresses, options of Airflow, commands."""

import json
import os
import subprocess
import sys
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from state_lib.config import PREFIX, Settings
from state_lib.host.http.app import OPEN
from state_lib.settings.stack import AIRFLOW_PORT
from state_lib.stack.airflow import config
from tests.support.compose import (
    AIRFLOW,
    BROKERS,
    DOCKER,
    HOSTS,
    compose,
    environment,
    image_environment,
    of_image,
    service,
    zone,
)

HEALTHY = ["CMD", "python", "/opt/holdfast/bin/healthy.py"]


def holdfast(name: str) -> dict[str, str]:
    """Holdfast's variables of a service."""
    given = {**image_environment(), **environment(name)}
    return {key: value for key, value in given.items() if key.startswith(PREFIX)}


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """As a host of the compose file reads them."""
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    for name, value in holdfast("host-1").items():
        monkeypatch.setenv(name, value)
    return Settings.load()


def test_every_variable_is_a_setting_and_all_services_have_the_same() -> None:
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    users = [name for name in of_image() if name.startswith(("host-", "airflow-"))]
    found = [holdfast(name) for name in users]
    assert all(set(one) <= known for one in found)
    masters = [one.pop("HOLDFAST_SPARK_MASTER", None) for one in found]
    assert [name for name, one in zip(users, masters, strict=True) if one] == ["airflow-migrate"]
    assert all(one == found[0] for one in found)
    if "zone" in Settings.model_fields:  # then placement needs it
        assert all(holdfast(name)[f"{PREFIX}ZONE"] == zone(name) for name in HOSTS)


def test_hosts_and_brokers_are_the_services_of_these_names(settings: Settings) -> None:
    assert settings.bootstrap_servers == ",".join(f"{name}:9092" for name in BROKERS)
    assert [one.id for one in settings.host_addresses] == list(HOSTS)
    for address in settings.host_addresses:
        given = service(address.id)
        assert address.host == address.id
        assert given["command"][-2:] == ["--id", address.id]
        assert given["healthcheck"]["test"] == [*HEALTHY, f"{address.http_url}/livez"]
    assert "/livez" in OPEN
    assert settings.token_file == Path("/run/secrets/holdfast-token")
    assert settings.jars_dir == Path("/opt/holdfast/jars")


def test_a_commit_needs_two_of_three_brokers(settings: Settings) -> None:
    voters = ",".join(f"{i}@{name}:9093" for i, name in enumerate(BROKERS, 1))
    for i, name in enumerate(BROKERS, 1):
        seen = environment(name)
        assert seen["KAFKA_NODE_ID"] == str(i)
        assert seen["KAFKA_ADVERTISED_LISTENERS"] == f"PLAINTEXT://{name}:9092"
        assert seen["KAFKA_CONTROLLER_QUORUM_VOTERS"] == voters
        factors = [v for k, v in seen.items() if k.endswith("REPLICATION_FACTOR")]
        assert factors == [str(settings.replication_factor)] * 4 == ["3"] * 4
        least = [v for k, v in seen.items() if k.endswith(("MIN_ISR", "MIN_INSYNC_REPLICAS"))]
        assert least == [str(settings.min_insync_replicas)] * 3 == ["2"] * 3
        assert seen["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
        assert seen["KAFKA_UNCLEAN_LEADER_ELECTION_ENABLE"] == "false"
        assert seen["CLUSTER_ID"].startswith("${KAFKA_CLUSTER_ID:?")


def test_pages_are_where_the_local_stack_has_them(settings: Settings) -> None:
    assert service("airflow-api-server")["ports"] == [f"127.0.0.1:{AIRFLOW_PORT}:8080"]
    assert service("airflow-scheduler")["ports"] == [
        f"127.0.0.1:{settings.spark_ui_port}:{settings.spark_ui_port}"
    ]
    base = environment("airflow-scheduler")["AIRFLOW__API__BASE_URL"]
    assert base == f"http://127.0.0.1:{AIRFLOW_PORT}"


def test_storage_is_the_s3_server(settings: Settings) -> None:
    assert settings.snapshots_url.startswith("s3://")
    seen = environment("host-1")
    assert seen["AWS_ENDPOINT_URL"] == "http://objects:8333"
    assert "-s3.port=8333" in service("objects")["command"]
    assert set(environment("objects-bucket").items()) == {
        (key, value)
        for key, value in seen.items()
        if key.startswith("AWS_") or key == "HOLDFAST_SNAPSHOTS_URL"
    }


def test_airflow_knows_every_option_and_reads_secrets_by_command() -> None:
    known = yaml.safe_load(files("airflow").joinpath("config_templates/config.yml").read_text())
    for variable, value in {pair for name in AIRFLOW for pair in environment(name).items()}:
        if not variable.startswith("AIRFLOW__"):
            continue
        section, key = variable.removeprefix("AIRFLOW__").lower().split("__")
        option = known[section]["options"][key.removesuffix("_cmd")]
        assert bool(option.get("sensitive")) == key.endswith("_cmd") == value.startswith("cat /")


def test_airflow_is_told_what_the_local_stack_tells_it() -> None:
    ours = {
        f"AIRFLOW__{section}__{key}".upper(): str(value)
        for section, values in config.tuning().items()
        for key, value in values.items()
        if section not in ("api", "dag_processor")  # their defaults suit several machines
    }
    seen = environment("airflow-scheduler")
    assert {key: seen.get(key, "").title() for key in ours} == {
        key: value.title() for key, value in ours.items()
    }
    url = seen["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"]
    assert url == "http://airflow-api-server:8080/execution/"
    folder = image_environment()["HOLDFAST_DAGS_DIR"]
    assert seen["AIRFLOW__CORE__DAGS_FOLDER"] == folder
    assert all(f"../dags:{folder}:ro" in service(name)["volumes"] for name in AIRFLOW)


def test_airflows_components_are_asked_for_by_their_names() -> None:
    names = ("scheduler", "dag-processor", "triggerer")
    for name in names:
        *_, url, component = service(f"airflow-{name}")["healthcheck"]["test"]
        assert url == "http://airflow-api-server:8080/api/v2/monitor/health"
        assert component == name.replace("-", "_")


def test_airflow_has_these_commands() -> None:
    """Its own parser reads them, in a process of its own: it takes 5 s to import."""
    commands = [service(name)["command"] for name in AIRFLOW]
    airflows = [command[1:] for command in commands if command[0] == "airflow"]
    assert len(airflows) == 4
    code = (
        "import json, sys; from airflow.cli.cli_parser import get_parser; parser = get_parser();"
        "[parser.parse_args(one) for one in json.loads(sys.argv[1])]"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(airflows)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (migration,) = [command for command in commands if command[0] != "airflow"]
    assert migration[:2] == ["python", "-m"]
    assert find_spec(migration[2]) is not None


def test_hosts_are_started_by_their_own_command() -> None:
    """The command is understood, and refused because its id is not in another list."""
    (program, *arguments, name), *others = (service(host)["command"] for host in HOSTS)
    assert others == [[program, *arguments, host] for host in HOSTS[1:]]
    assert program == "python"
    environment = {**os.environ, "HOLDFAST_HOSTS": "other=127.0.0.1:1/2"}
    command = [sys.executable, *arguments, name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"no host '{name}' in HOLDFAST_HOSTS" in done.stdout + done.stderr


def test_spark_is_in_client_mode_and_can_be_called_back() -> None:
    master = service("spark-master")
    url = f"spark://{master['hostname']}:7077"
    assert environment("airflow-migrate")["HOLDFAST_SPARK_MASTER"] == url
    for i in (1, 2):
        worker = service(f"spark-worker-{i}")
        assert worker["command"][-1] == url
        assert worker["hostname"] == f"spark-worker-{i}"
    scheduler = service("airflow-scheduler")
    assert scheduler["environment"]["SPARK_LOCAL_HOSTNAME"] == scheduler["hostname"]


def test_grafana_and_prometheus_are_given_the_files_that_are_there() -> None:
    def target(name: str, source: str) -> Any:
        volumes = [one.split(":") for one in service(name)["volumes"]]
        return next(path for file, path, *_ in volumes if file == source)

    at = target("prometheus", "./prometheus")
    assert f"--config.file={at}/prometheus.yaml" in service("prometheus")["command"]
    dashboards = target("grafana", "./grafana/dashboards")
    assert target("grafana", "./grafana/provisioning") == "/etc/grafana/provisioning"
    provider = yaml.safe_load(
        (DOCKER / "grafana/provisioning/dashboards/holdfast.yaml").read_text()
    )["providers"][0]
    assert provider["options"]["path"] == dashboards
    home = environment("grafana")["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (DOCKER / "grafana" / "dashboards" / Path(home).name).exists()
    assert compose()["name"] == "holdfast"
