"""Logging in to Kafka: what settings say, in librdkafka's words and in Java's; what is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError
from typer.testing import CliRunner

from state_lib.cli import app
from state_lib.config import PREFIX, Settings
from state_lib.errors import ConfigurationError, KafkaRefused, Unavailable
from state_lib.kafka import Kafka
from state_lib.kafka_door import ENOUGH, Door
from state_lib.kafka_login import KafkaLogin
from tests.support.environment import set_environment

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
SERVERS = "kafka-1:9093,kafka-2:9093"
REFUSED = KafkaError(KafkaError._AUTHENTICATION, "no such user")
TIMED_OUT = KafkaError(KafkaError._TIMED_OUT)


@pytest.fixture(autouse=True)
def _clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ca.pem").write_text(PEM)


def load(**given: Any) -> Settings:
    login = {
        "bootstrap_servers": SERVERS,
        "kafka_security_protocol": "SASL_SSL",
        "kafka_sasl_username": "flights",
        "kafka_sasl_password": "s3cret",
        "kafka_ssl_ca": "ca.pem",
    }
    return Settings.load(**login | given)


def test_the_same_login_for_librdkafka_and_java(tmp_path: Path) -> None:
    login = load().kafka_login()
    assert login.principal == "User:flights"
    assert login.librdkafka() == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "flights",
        "sasl.password": "s3cret",
        "ssl.ca.location": str(tmp_path / "ca.pem"),
    }
    assert login.java() == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="flights" password="s3cret";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": PEM,
    }


def test_without_security_nothing_is_sent() -> None:
    login = Settings.load().kafka_login()
    assert login == KafkaLogin()
    assert login.librdkafka() == login.java() == {"security.protocol": "PLAINTEXT"}
    assert login.principal == "User:ANONYMOUS"


def test_java_quotes_what_would_end_a_password() -> None:
    login = KafkaLogin("SASL_PLAINTEXT", "PLAIN", 'a"b', "c\\d")
    assert login.java()["sasl.jaas.config"].endswith(r'username="a\"b" password="c\\d";')


def test_the_passwords_file_wins(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("from-file\n")
    assert load(kafka_sasl_password_file="password").kafka_login().password == "from-file"


@pytest.mark.parametrize("content", [None, b"", b" \n", b"two\nlines\n", b"\xff\xfe"])
def test_a_bad_passwords_file_is_refused(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "password").write_bytes(content)
    settings = load(kafka_sasl_password_file="password")
    with pytest.raises(ConfigurationError, match="HOLDFAST_KAFKA_SASL_PASSWORD_FILE"):
        Kafka.of(settings)


@pytest.mark.parametrize("content", [None, b"\xfe\xed\xfe\xed a Java keystore"])
def test_authorities_that_are_no_pem_are_refused(tmp_path: Path, content: bytes | None) -> None:
    (tmp_path / "ca.pem").unlink()
    if content is not None:
        (tmp_path / "ca.pem").write_bytes(content)
    with pytest.raises(ConfigurationError, match="HOLDFAST_KAFKA_SSL_CA"):
        Kafka.of(load())


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"kafka_sasl_username": ""}, "kafka_sasl_username"),
        ({"kafka_sasl_password": ""}, "kafka_sasl_password"),
        ({"kafka_security_protocol": "PLAINTEXT"}, "SASL_SSL"),
        ({"kafka_security_protocol": "SSL"}, "SASL_SSL"),
        ({"kafka_security_protocol": "SASL_PLAINTEXT"}, "kafka_ssl_ca"),
        ({"kafka_security_protocol": "TLS"}, "kafka_security_protocol"),
        ({"kafka_sasl_mechanism": "GSSAPI"}, "kafka_sasl_mechanism"),
        ({"bootstrap_servers": ""}, "bootstrap_servers"),
    ],
)
def test_what_does_not_fit_together_is_refused(given: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named) as refused:
        load(**given)
    assert "s3cret" not in refused.value.message
    assert "s3cret" not in str(refused.value.__cause__)


def test_a_child_process_logs_in_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load()
    set_environment(monkeypatch, settings)
    monkeypatch.chdir("/")
    assert Settings.load().kafka_login() == settings.kafka_login()


def test_the_password_is_in_no_repr() -> None:
    settings = load()
    shown = [settings, settings.kafka_login(), Kafka.of(settings), Kafka.of(settings).door]
    assert "s3cret" not in repr(shown)
    assert "s3cret" not in str(settings)


class TestDoor:
    def door(self) -> Door:
        return Door(SERVERS, load().kafka_login())

    def test_one_refusal_may_be_a_broker_that_goes_down(self) -> None:
        door = self.door()
        door.hear(REFUSED)
        error = door.error("read topic 'flights'", TIMED_OUT)
        assert isinstance(error, Unavailable)
        assert f"{SERVERS} did not read topic 'flights' (over SASL_SSL)" in error.message

    def test_several_in_a_row_explain_a_time_out(self) -> None:
        door = self.door()
        for _ in range(ENOUGH):
            door.hear(REFUSED)
        door.hear(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        error = door.error("read topic 'flights'", TIMED_OUT)
        assert isinstance(error, KafkaRefused)
        assert "did not let User:flights in: no such user" in error.message
        door.welcome()
        assert isinstance(door.error("read", TIMED_OUT), Unavailable)

    def test_a_right_that_is_missing_names_who_and_what(self) -> None:
        failure = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        error = self.door().error("read topic 'flights'", failure)
        assert isinstance(error, KafkaRefused)
        assert error.message.startswith("User:flights may not read topic 'flights'")
        assert "holdfast acls APP --principal User:flights" in error.message
        assert error.details["resource"] == "read topic 'flights'"


@pytest.mark.parametrize("arguments", [["config"], ["config", "--json"], ["config", "--given"]])
def test_the_config_command_masks_the_password(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_environment(monkeypatch, load())
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "flights" in result.stdout
    assert "s3cret" not in result.output
