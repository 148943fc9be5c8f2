"""From a Spark connection to a command: the connection says where the job runs."""

from __future__ import annotations

import socket
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from holdfast_airflow.hooks.spark import SparkTarget, job_file
from state_lib.config import Settings
from state_lib.errors import ConfigurationError
from state_lib.stack.ports import free_port
from tests.dags.conftest import Connect


def target(**given: object) -> SparkTarget:
    settings = Settings.load(driver_memory="777m", token="abc")
    return SparkTarget("spark_default", "flights", settings, **given)  # type: ignore[arg-type]


def conf_of(command: list[str]) -> dict[str, str]:
    pairs = [b for a, b in pairwise(command) if a == "--conf"]
    return dict(pair.split("=", 1) for pair in pairs)


def master_of(command: list[str]) -> str:
    return command[command.index("--master") + 1]


def test_the_connection_says_where(connect: Connect) -> None:
    connect("local[3,4]")
    assert master_of(target().command("/jobs/flights.py")) == "local[3,4]"
    connect("spark://spark.example", port=7077)
    assert master_of(target().command("/jobs/flights.py")) == "spark://spark.example:7077"
    connect("yarn", extra={"deploy-mode": "cluster", "queue": "streams"})
    command = target().command("/jobs/flights.py")
    assert master_of(command) == "yarn"
    assert command[command.index("--queue") + 1] == "streams"
    assert target().in_cluster


def test_what_must_be_known_before_the_jvm_starts(connect: Connect) -> None:
    connect("local[2,4]")
    command = target(conf={"spark.ui.port": "1234", "x.y": "z"}).command("/jobs/flights.py")
    conf = conf_of(command)
    assert command[0] == "spark-submit"
    assert command[-1] == "/jobs/flights.py"
    assert "spark-sql-kafka" in conf["spark.driver.extraClassPath"]
    assert conf["spark.driver.memory"] == "777m"
    assert conf["spark.ui.port"] == "1234"
    assert conf["x.y"] == "z"
    assert conf["spark.driver.host"] == "127.0.0.1"


def test_an_operators_class_path_is_added_to_ours(connect: Connect) -> None:
    path = "spark.driver.extraClassPath"
    connect("local[2,4]")
    ours = conf_of(target().command("j.py"))[path]
    assert conf_of(target(conf={path: "/x.jar"}).command("j.py"))[path] == f"{ours}:/x.jar"
    connect("spark://spark.example", port=7077)
    assert path not in conf_of(target().command("j.py"))
    assert conf_of(target(conf={path: "/x.jar"}).command("j.py"))[path] == "/x.jar"


def test_executors_elsewhere_must_reach_the_driver(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)  # Spark in another test leaves it
    connect("spark://127.0.0.1", port=7077)
    assert conf_of(target().command("j.py"))["spark.driver.host"] == "127.0.0.1"
    connect("spark://spark.example", port=7077)
    assert "spark.driver.host" not in conf_of(target().command("j.py"))
    assert "SPARK_LOCAL_IP" not in target().environment()


def test_the_driver_gets_holdfasts_settings_and_none_of_airflows_secrets(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect("local[2,4]")
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "postgresql://airflow:pass@db")
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", "x://user:pass@host")
    settings = target().settings
    environment = target(env={"EXTRA": "1"}).environment()
    assert environment["HOLDFAST_TOKEN"] == settings.read_token()
    assert environment["EXTRA"] == "1"
    assert environment["PYSPARK_PYTHON"] == sys.executable
    assert environment["PATH"].startswith(str(Path(sys.executable).parent))
    assert not [name for name in environment if "AIRFLOW" in name]


def test_a_master_that_does_not_answer_is_told_at_once(connect: Connect) -> None:
    port = free_port()
    connect("spark://127.0.0.1", port=port)
    with pytest.raises(ConfigurationError, match=rf"127\.0\.0\.1:{port}.*correct the connection"):
        target().check()


def test_a_port_that_is_given_twice_is_named(connect: Connect) -> None:
    connect("spark://spark.example:7077", port=7077)
    why = r"spark://spark\.example:7077:7077.*host spark://spark\.example and port 7077"
    with pytest.raises(ConfigurationError, match=why):
        target().check()
    connect("spark://spark.example:many")
    with pytest.raises(ConfigurationError, match=r"spark://spark\.example:many.*is no address"):
        target().check()


def test_one_answering_master_of_several_is_enough(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        there, gone = server.getsockname()[1], free_port()
        connect(f"spark://127.0.0.1:{gone},127.0.0.1:{there}")
        target().check()


def test_a_missing_connection_is_not_taken_for_yarn(connect: Connect) -> None:
    connect("local[2,4]", conn_id="another")
    with pytest.raises(ConfigurationError, match="no connection 'nowhere': create it"):
        SparkTarget("nowhere", "flights", Settings.load()).check()


def test_standalone_spark_has_no_cluster_mode_for_python(connect: Connect) -> None:
    connect("spark://127.0.0.1", port=7077, extra={"deploy-mode": "cluster"})
    with pytest.raises(ConfigurationError, match="client mode only"):
        target().check()


@pytest.mark.parametrize(
    ("extra", "seen"),
    [
        ({"spark-binary": "my-submit"}, "my-submit"),
        ({"spark-home": "/opt/spark"}, "spark-home"),
        ({"rest-port": "many"}, "many"),
    ],
)
def test_a_connection_that_the_provider_refuses_is_named(
    connect: Connect, extra: dict[str, str], seen: str
) -> None:
    connect("local[2,4]", extra=extra)
    with pytest.raises(ConfigurationError, match=r"'spark_default'.*Admin, Connections") as caught:
        target().check()
    assert seen in caught.value.message
    assert caught.value.details["conn_id"] == "spark_default"


def test_kubernetes_needs_its_provider(connect: Connect) -> None:
    connect("k8s://https://kube.example", port=6443)
    with pytest.raises(ConfigurationError, match="install apache-airflow-providers-cncf-kuber"):
        target().check()


def test_a_job_file_that_does_not_exist(tmp_path: Path) -> None:
    (tmp_path / "word_count.py").touch()
    settings = Settings.load(jobs_dir=tmp_path)
    assert job_file(settings, "word_count", None) == str(tmp_path / "word_count.py")
    assert job_file(settings, "x", "word_count.py") == str(tmp_path / "word_count.py")
    assert job_file(settings, "x", "s3a://bucket/x.py") == "s3a://bucket/x.py"
    with pytest.raises(ConfigurationError, match=r"flights\.py does not exist.*word_count\.py"):
        job_file(settings, "flights", None)
