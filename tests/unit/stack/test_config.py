"""Settings: sources, derived values, and what is refused."""

import json
import os
from pathlib import Path

import pytest

from state_lib.config import PREFIX, Settings
from state_lib.errors import ConfigurationError
from state_lib.protocol.addresses import HostAddress, parse_hosts
from state_lib.settings import SECTIONS
from tests.support.environment import set_environment


@pytest.fixture(autouse=True)
def _clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def test_flags_win_over_environment_over_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "holdfast.toml").write_text(
        "[stack]\nkafka_port = 1001\nkafka_controller_port = 1002\n"
        '[driver]\nspark_master = "local[7]"\n'
    )
    monkeypatch.setenv("HOLDFAST_KAFKA_PORT", "2001")
    monkeypatch.setenv("HOLDFAST_KAFKA_CONTROLLER_PORT", "2002")
    settings = Settings.load(kafka_port=3001, kafka_controller_port=None)
    assert (settings.kafka_port, settings.kafka_controller_port) == (3001, 2002)
    assert settings.spark_master == "local[7]"


def test_the_local_stack_has_one_replica_and_a_cluster_three(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    local = Settings.load(kafka_port=4001)
    assert local.bootstrap_servers == "127.0.0.1:4001"
    assert (local.replication_factor, local.min_insync_replicas) == (1, 1)
    monkeypatch.setenv("HOLDFAST_BOOTSTRAP_SERVERS", "kafka:9092")
    cluster = Settings.load()
    assert (cluster.replication_factor, cluster.min_insync_replicas) == (3, 2)


def test_a_child_process_sees_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings.load(home="here", token="s3cret", block_cache_bytes="1GiB", kafka_port=4001)
    assert settings.home == tmp_path / "here"
    assert settings.block_cache_bytes == 1 << 30
    set_environment(monkeypatch, settings)
    monkeypatch.chdir("/")
    assert Settings.load() == settings


def test_wrong_values_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_KAFKA_PORT", "ninety")
    with pytest.raises(ConfigurationError, match=r"HOLDFAST_KAFKA_PORT.*ninety"):
        Settings.load()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[stack]\nkafka_prot = 1", r"\[stack\] kafka_prot: there is no such setting"),
        ("kafka_port = 1", r"kafka_port: it belongs into the section \[stack\]"),
        ("[kafka]\nkafka_properties = '{}'\na.b = 1", "kafka_properties as text and a.b beside it"),
        ("[kafka]\nkafka_port = 1", r"\[kafka\] kafka_port: it belongs into .* \[stack\]"),
        ("[host]\nsocket.timeout.ms = 1", r"\[host\] socket.timeout.ms: there is no such"),
        ("[hosts]\nid = 1", "hosts: it belongs into"),
        ("[nosuch]\nid = 1", r"nosuch: there is no .*'kafka', 'host', 'driver', 'stack'"),
        ("host = 1", r"\[host\] is a section"),
        ("[host\n", "no TOML"),
        ("[driver]\nmax_restarts = 0", "max_restarts.*seen: 0"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "holdfast.toml").write_text(text)
    with pytest.raises(ConfigurationError, match=said):
        Settings.load()


@pytest.mark.parametrize("text", ['tokn = "s3cret"', '[host]\ntokn = "s3cret"'])
def test_the_value_of_an_unknown_setting_is_not_shown(tmp_path: Path, text: str) -> None:
    (tmp_path / "holdfast.toml").write_text(text)
    with pytest.raises(ConfigurationError, match="tokn") as refused:
        Settings.load()
    assert "s3cret" not in refused.value.message


def test_every_setting_has_one_section() -> None:
    found = [name for model in SECTIONS.values() for name in model.model_fields]
    assert sorted(found) == sorted(Settings.model_fields)


def test_every_setting_can_stand_in_its_section(tmp_path: Path) -> None:
    """Each with its default, of which all are right."""
    lines = []
    for section, model in SECTIONS.items():
        lines.append(f"[{section}]")
        values = {name: getattr(Settings.load(), name) for name in model.model_fields}
        plain = {n: v for n, v in values.items() if isinstance(v, str | int | float)}
        lines += [f"{name} = {json.dumps(value)}" for name, value in plain.items()]
    (tmp_path / "holdfast.toml").write_text("\n".join(lines))
    before = Settings.load()
    (tmp_path / "holdfast.toml").unlink()
    assert before == Settings.load()
    assert len(lines) > 35


class TestToken:
    def test_none_by_default(self) -> None:
        assert Settings.load().read_token() is None

    def test_is_not_shown(self) -> None:
        settings = Settings.load(token="s3cret")
        assert settings.read_token() == "s3cret"
        assert "s3cret" not in repr(settings)

    def test_the_file_wins(self, tmp_path: Path) -> None:
        (tmp_path / "token").write_text("from-file\n")
        assert Settings.load(token="x", token_file="token").read_token() == "from-file"

    def test_a_flag_wins_over_the_file_of_the_environment(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOLDFAST_TOKEN_FILE", "/nowhere")
        assert Settings.load(token="x").read_token() == "x"
        monkeypatch.setenv("HOLDFAST_TOKEN", "of the environment")
        with pytest.raises(ConfigurationError, match="HOLDFAST_TOKEN_FILE"):
            Settings.load().read_token()

    @pytest.mark.parametrize("content", [None, "", " \n"])
    def test_a_missing_or_empty_file_opens_nothing(
        self, tmp_path: Path, content: str | None
    ) -> None:
        if content is not None:
            (tmp_path / "token").write_text(content)
        settings = Settings.load(token="x", token_file="token")
        with pytest.raises(ConfigurationError, match="HOLDFAST_TOKEN_FILE"):
            settings.read_token()


class TestAirflowsDatabase:
    def test_its_url_may_stand_in_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "url").write_text("postgresql://me:s3cret@h/airflow\n")
        settings = Settings.load(airflow_db_file="url")
        assert settings.read_airflow_db() == "postgresql://me:s3cret@h/airflow"
        assert "s3cret" not in repr(settings) + str(settings.as_environment())
        (tmp_path / "url").write_text("mysql://h/airflow")
        with pytest.raises(ConfigurationError, match=r"HOLDFAST_AIRFLOW_DB_FILE.*postgresql://"):
            settings.read_airflow_db()

    def test_a_flag_wins_over_the_file_of_the_environment(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOLDFAST_AIRFLOW_DB_FILE", "/nowhere")
        assert Settings.load(airflow_db="sqlite:///x").read_airflow_db() == "sqlite:///x"


class TestHosts:
    def test_parses(self) -> None:
        settings = Settings.load(hosts="a=127.0.0.1:1/2, b=example.org:3/4")
        assert settings.host_addresses == (
            HostAddress("a", "127.0.0.1", 1, 2),
            HostAddress("b", "example.org", 3, 4),
        )
        assert settings.host_address("b").http_url == "http://example.org:4"

    def test_unknown_host(self) -> None:
        with pytest.raises(ConfigurationError, match="HOLDFAST_HOSTS"):
            Settings.load().host_address("nobody")

    @pytest.mark.parametrize(
        "text",
        [
            "a",
            "a=h:1",
            "a=h:1/x",
            "a=h:1/99999",
            "a=h:0/1",
            "a=h:1/1",
            "../a=h:1/2",
            "a=h:1/2,a=h:3/4",
            "a=h:1/2,b=h:2/3",
        ],
    )
    def test_refuses(self, text: str) -> None:
        with pytest.raises(ConfigurationError):
            parse_hosts(text)
        with pytest.raises(ConfigurationError, match="hosts"):
            Settings.load(hosts=text)


@pytest.mark.parametrize(
    ("cores", "hosts", "workers"),
    [
        (8, "a=10.0.0.1:1/2,b=10.0.0.2:1/2", 4),
        (2, "a=10.0.0.1:1/2,b=10.0.0.2:1/2", 2),
        (2, "a=127.0.0.1:1/2,b=127.0.0.1:3/4", 1),
        (6, "a=127.0.0.1:1/2,b=127.0.0.1:3/4,c=10.0.0.1:1/2", 3),
        (1, "a=127.0.0.1:1/2,b=127.0.0.1:3/4", 1),
    ],
)
def test_hosts_of_one_machine_share_its_cores_for_restores(
    cores: int, hosts: str, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    settings = Settings.load(hosts=hosts)
    assert settings.restore_workers(settings.host_address("a")) == workers
    given = Settings.load(hosts=hosts, num_restore_workers=0)
    assert given.restore_workers(given.host_address("a")) == 0
