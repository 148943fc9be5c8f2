"""Settings: sources, derived values, and what is refused."""

import os
from pathlib import Path

import pytest

from state_lib.addresses import HostAddress, parse_hosts
from state_lib.config import PREFIX, Settings
from state_lib.errors import ConfigurationError


@pytest.fixture(autouse=True)
def _clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def test_flags_win_over_environment_over_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "holdfast.toml").write_text(
        'kafka_port = 1001\nkafka_controller_port = 1002\nspark_master = "local[7]"\n'
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
    for name, value in settings.as_environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir("/")
    assert Settings.load() == settings


def test_wrong_values_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_KAFKA_PORT", "ninety")
    with pytest.raises(ConfigurationError, match=r"HOLDFAST_KAFKA_PORT.*ninety"):
        Settings.load()


def test_a_typo_in_the_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text("kafka_prot = 1\n")
    with pytest.raises(ConfigurationError, match="kafka_prot"):
        Settings.load()


def test_the_value_of_an_unknown_setting_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text('tokn = "s3cret"\n')
    with pytest.raises(ConfigurationError, match="tokn") as refused:
        Settings.load()
    assert "s3cret" not in refused.value.message


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
