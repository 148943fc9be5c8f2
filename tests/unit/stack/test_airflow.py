"""What Airflow is told, without starting it."""

import configparser
import json
import os
import stat
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from state_lib.cli import app
from state_lib.config import PREFIX, Settings
from state_lib.errors import ConfigurationError, Unavailable
from state_lib.stack import Stack
from state_lib.stack.airflow import AirflowHome, config, database, environment, login
from state_lib.stack.ports import free_port


@pytest.fixture(autouse=True)
def _clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith((PREFIX, "AIRFLOW"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def told(**flags: Any) -> tuple[Settings, configparser.ConfigParser]:
    """Settings, and what Airflow's own kind of parser makes of the file that they lead to."""
    settings = Settings.load(**flags)
    parsed = configparser.ConfigParser()
    parsed.read(config.write(settings).config)
    return settings, parsed


def test_only_this_machine_may_knock_and_only_admin_come_in(tmp_path: Path) -> None:
    settings, seen = told(airflow_port=4321)
    assert (seen["api"]["host"], seen["api"]["port"]) == ("127.0.0.1", "4321")
    assert seen["core"]["execution_api_server_url"] == "http://127.0.0.1:4321/execution/"
    assert seen["core"]["simple_auth_manager_users"] == "admin:admin"
    assert seen["core"]["simple_auth_manager_all_admins"] == "False"
    assert seen["core"]["load_examples"] == "False"
    assert seen["core"]["dags_folder"] == str(tmp_path / "dags")
    passwords = Path(seen["core"]["simple_auth_manager_passwords_file"])
    assert len(json.loads(passwords.read_text())["admin"]) == 16
    assert login(settings).password_file == str(passwords)


def test_secrets_are_made_once_and_are_nobody_elses() -> None:
    settings, first = told()
    home = AirflowHome(settings.airflow_home)
    password = home.password()
    _, second = told()
    assert home.password() == password
    trust = [("api_auth", "jwt_secret"), ("api", "secret_key"), ("core", "fernet_key")]
    assert [first[s][k] for s, k in trust] == [second[s][k] for s, k in trust]
    assert len({first[s][k] for s, k in trust}) == 3
    assert stat.S_IMODE(home.path.stat().st_mode) == 0o700
    for file in (home.config, home.passwords, home.keys):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_open_admin_only_when_asked_for() -> None:
    settings, seen = told(airflow_open_admin=True)
    assert seen["core"]["simple_auth_manager_all_admins"] == "True"
    assert login(settings).password_file is None


def test_odd_paths_and_passwords_reach_airflow_as_they_are(tmp_path: Path) -> None:
    url = "postgresql://me:p%40ss%25@db/airflow"
    settings, seen = told(home=tmp_path / "100% mine", airflow_db=url)
    assert seen["database"]["sql_alchemy_conn"] == url.replace("://", "+psycopg2://")
    assert seen["logging"]["base_log_folder"] == f"{tmp_path}/100% mine/airflow/logs"
    assert "p%40ss" not in repr(settings)


def test_tasks_see_the_settings_of_the_stack(tmp_path: Path) -> None:
    settings = Settings.load(kafka_port=4001, token="s3cret")
    seen = environment(settings, {"PATH": "/bin"})
    assert settings.as_environment().items() <= seen.items()
    assert seen["AIRFLOW_HOME"] == str(tmp_path / ".holdfast" / "airflow")
    assert (Path(seen["PATH"].split(os.pathsep)[0]) / "spark-submit").exists()
    assert seen["PATH"].endswith(f"{os.pathsep}/bin")


def test_lost_stores_are_left_to_the_restore_dag_where_there_is_one() -> None:
    def mode(**flags: Any) -> str:
        settings = Stack(Settings.load(**flags)).settings
        return environment(settings, {})["HOLDFAST_RESTORE_MODE"]

    assert mode() == "orchestrated"
    assert mode(airflow=False) == "auto"
    assert mode(restore_mode="auto") == "auto", "somebody wants it so"
    assert Settings.load().restore_mode == "auto", "hosts of no stack heal by themselves"


def test_somebody_elses_airflow_lends_nothing() -> None:
    base = {
        "AIRFLOW_HOME": "/theirs",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "postgresql://theirs",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_CMD": "cat theirs",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": "postgresql+asyncpg://theirs",
        "AIRFLOW__API__HOST": "0.0.0.0",  # noqa: S104 - it is refused
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__CORE__FERNET_KEY": "theirs",
        "AIRFLOW__API_AUTH__JWT_SECRET": "theirs",
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": "[]",
        "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "7",
        "AIRFLOW_CONN_SPARK_DEFAULT": "spark://theirs:7077",
        "AIRFLOW_CONN_AWS_DEFAULT": "aws://",
    }
    seen = environment(Settings.load(), base)
    assert [name for name in seen if name.startswith("AIRFLOW__")] == [
        "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC"
    ]
    assert [name for name in seen if name.startswith("AIRFLOW_CONN_")] == [
        "AIRFLOW_CONN_AWS_DEFAULT"
    ], "the page shows where streams run"
    assert seen["AIRFLOW_HOME"] != "/theirs"


def test_tasks_reach_the_api_server_in_spite_of_a_proxy() -> None:
    seen = environment(Settings.load(), {"HTTP_PROXY": "http://proxy:1", "no_proxy": "intra"})
    assert seen["NO_PROXY"] == seen["no_proxy"] == "intra,127.0.0.1"


@pytest.mark.parametrize("url", ["airflow.db", "mysql://a:secret@b/c", "postgres://a:secret@b/c"])
def test_what_airflow_cannot_run_on_is_refused_at_once(url: str) -> None:
    with pytest.raises(ConfigurationError, match="airflow_db") as refused:
        Settings.load(airflow_db=url)
    assert "secret" not in refused.value.message
    assert "postgresql://" in refused.value.message


def test_a_database_that_does_not_answer_is_named_without_its_password() -> None:
    url = f"postgresql://me:s3cret@127.0.0.1:{free_port()}/airflow"
    with pytest.raises(Unavailable, match="HOLDFAST_AIRFLOW_DB") as silent:
        database.prepare(Settings.load(airflow_db=url))
    assert "s3cret" not in silent.value.message
    assert "me:***@127.0.0.1" in silent.value.message


def test_a_database_that_airflow_does_not_finish_with_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(database, "MIGRATE_TIMEOUT_S", 0.01)
    with pytest.raises(Unavailable, match=r"has not prepared its database sqlite:.*in 0\.01 s"):
        database.prepare(Settings.load())


@pytest.mark.parametrize(
    ("section", "name", "most"),
    [
        ("scheduler", "task_instance_heartbeat_timeout", 60),  # of a stream without a worker
        ("workers", "min_heartbeat_interval", 1),  # a deferred task that goes on before is run anew
    ],
)
def test_what_airflow_notices_soon(section: str, name: str, most: int) -> None:
    """Within so many seconds; the option is one that the installed Airflow reads."""
    _, seen = told()
    assert int(seen[section][name]) <= most
    airflow = find_spec("airflow")  # not imported: that takes seconds
    assert airflow is not None
    assert airflow.origin is not None
    known = Path(airflow.origin).with_name("config_templates") / "config.yml"
    assert f"\n    {name}:\n" in known.read_text()


def test_status_tells_how_to_get_in(tmp_path: Path) -> None:
    found = json.loads(CliRunner().invoke(app, ["status", "--json"]).stdout)
    assert found["airflow"] == {
        "url": "http://127.0.0.1:28080",
        "user": "admin",
        "password_file": str(tmp_path / ".holdfast" / "airflow" / "passwords.json"),
    }
    assert not (tmp_path / ".holdfast").exists(), "nothing is made by looking"


def test_a_stack_without_airflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_AIRFLOW", "false")
    refused = CliRunner().invoke(app, ["demo"])
    assert refused.exit_code == 1
    assert "HOLDFAST_AIRFLOW" in refused.stderr
    found = json.loads(CliRunner().invoke(app, ["status", "--json"]).stdout)
    assert found["airflow"] is None
    assert not [one for one in found["services"] if one["name"].startswith("airflow")]
