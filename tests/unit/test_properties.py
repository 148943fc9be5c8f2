"""Properties of librdkafka and of Spark that are passed through, and secrets in files."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from state_lib.config import PREFIX, Settings
from state_lib.errors import ConfigurationError
from state_lib.kafka import Kafka
from state_lib.spark.properties import properties
from state_lib.spark.session import check_login
from state_lib.submit import secret_conf, submit_conf
from tests.support.environment import set_environment

FILE = """
[kafka]
socket.timeout.ms = 5000
"ssl.key.password_file" = "key-password"

[driver]
spark.executor.memory = "4g"
spark.speculation = true
"""


@pytest.fixture(autouse=True)
def _clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def test_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text(FILE)
    (tmp_path / "key-password").write_text("s3cret\n")
    settings = Settings.load()
    assert settings.kafka_properties == {
        "socket.timeout.ms": "5000",
        "ssl.key.password_file": str(tmp_path / "key-password"),
    }
    kafka = Kafka.of(settings)
    assert kafka.properties["socket.timeout.ms"] == "5000"
    assert kafka.properties["ssl.key.password"] == "s3cret"
    assert "ssl.key.password_file" not in kafka.properties
    assert "s3cret" not in repr(settings) + repr(kafka) + str(settings.as_environment())
    assert settings.spark_properties == {
        "spark.executor.memory": "4g",
        "spark.speculation": "true",
    }


def test_variables_win_over_the_file_and_children_see_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "holdfast.toml").write_text(FILE)
    monkeypatch.setenv("HOLDFAST_KAFKA_PROPERTIES", '{"client.id": "me", "linger.ms": 7}')
    settings = Settings.load()
    assert settings.kafka_properties == {"client.id": "me", "linger.ms": "7"}
    assert settings.spark_properties["spark.executor.memory"] == "4g"
    set_environment(monkeypatch, settings)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "holdfast.toml").write_text("[driver]\nspark.executor.cores = 2\n")
    monkeypatch.chdir(elsewhere)
    assert Settings.load() == settings
    given = json.loads(settings.as_environment()["HOLDFAST_SPARK_PROPERTIES"])
    assert Settings.load(spark_properties=json.dumps(given)).spark_properties == given


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("kafka_properties", {"acks": "1"}, "acks is not free: the commit protocol"),
        ("kafka_properties", {"sasl.username": "me"}, "set kafka_sasl_username"),
        ("kafka_properties", {"ssl.ca.location_file": "x"}, "set kafka_ssl_ca"),
        ("kafka_properties", {"ssl.key.password": "s3cret"}, '"ssl.key.password_file"'),
        ("kafka_properties", {"ssl.key.pem": "s3cret"}, "ssl.key.pem is a secret"),
        ("kafka_properties", {"x.y": ["s3cret"]}, "x.y: text, a number"),
        ("kafka_properties", '{"x.y": "s3cret"', "must be JSON"),
        ("kafka_properties", "s3cret", "must be JSON"),
        ("spark_properties", {"spark.master": "local"}, "set spark_master"),
        ("spark_properties", {"spark.hadoop.fs.s3a.secret.key": "s3cret"}, "secret.key_file"),
        *(
            ("spark_properties", {f"spark.hadoop.fs.{name}": "s3cret"}, "is a secret")
            for name in (
                "azure.account.key.me.dfs.core.windows.net",
                "azure.account.oauth2.client.secret.me.dfs.core.windows.net",
                "azure.sas.fixed.token.me.dfs.core.windows.net",
                "gs.auth.service.account.private.key",
            )
        ),
        *(
            ("kafka_properties", {f"sasl.oauthbearer.{name}": "s3cret"}, "is a secret")
            for name in ("assertion.private.key.passphrase", "config", "client.secret")
        ),
        ("spark_properties", {"sparc.x": "1"}, "begin with 'spark.'"),
    ],
)
def test_what_is_not_free_is_refused_without_its_value(
    name: str, value: dict[str, object] | str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match=said) as refused:
        Settings.load(**{name: value})
    assert "s3cret" not in refused.value.message
    monkeypatch.setenv(
        PREFIX + name.upper(), value if isinstance(value, str) else json.dumps(value)
    )
    with pytest.raises(ConfigurationError, match=said) as refused:
        Settings.load()
    assert "s3cret" not in refused.value.message + str(refused.value.__cause__)


def test_names_that_only_look_like_secrets_are_free() -> None:
    free = {"sasl.oauthbearer.token.endpoint.url": "http://x", "ssl.certificate.pem": "x"}
    assert Settings.load(kafka_properties=free).kafka_properties == free
    of_spark = {
        "spark.authenticate.secretBitLength": "256",
        "spark.kubernetes.driver.secrets.s3": "/etc/s3",
        "spark.kubernetes.driver.secretKeyRef.ID": "s3:id",
        "spark.hadoop.fs.azure.account.oauth2.token.provider.type": "Custom",
    }
    assert Settings.load(spark_properties=of_spark).spark_properties == of_spark


def test_librdkafka_judges_what_it_is_given() -> None:
    for given in ({"socket.timeot.ms": 1}, {"linger.ms": "soon"}):
        kafka = Kafka.of(Settings.load(kafka_properties=given, bootstrap_servers="127.0.0.1:1"))
        for make in (kafka.admin, kafka.producer, kafka.reader):
            with pytest.raises(ConfigurationError, match="HOLDFAST_KAFKA_PROPERTIES"):
                make()


def test_a_users_property_wins_over_what_one_client_has(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, object]] = []
    monkeypatch.setattr("state_lib.kafka.Producer", seen.append)
    settings = Settings.load(kafka_properties={"linger.ms": 50}, bootstrap_servers="127.0.0.1:1")
    Kafka.of(settings).producer(None, **{"linger.ms": 0, "transactional.id": "t"})
    (given,) = seen
    assert (given["linger.ms"], given["acks"], given["transactional.id"]) == ("50", "all", "t")


@pytest.mark.parametrize("content", [None, "", "two\nlines\n"])
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "key").write_text(content)
    kafka = Settings.load(kafka_properties={"ssl.key.password_file": "key"})
    with pytest.raises(ConfigurationError, match=r"ssl\.key\.password_file of kafka_properties"):
        Kafka.of(kafka)
    spark = Settings.load(spark_properties={"spark.ssl.keyPassword_file": "key"})
    with pytest.raises(ConfigurationError, match=r"keyPassword_file of spark_properties"):
        secret_conf(spark)


def test_a_driver_gets_those_of_spark_and_secrets_by_no_command_line(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("s3cret")
    given = {
        "spark.driver.host": "10.0.0.9",
        "spark.jars": "mine.jar",
        "spark.driver.extraClassPath": "mine.jar",
        "spark.hadoop.fs.s3a.secret.key_file": "key",
    }
    given |= {"spark.hadoop.mine_file": "key"}
    settings = Settings.load(spark_properties=given)
    name = "spark.hadoop.fs.s3a.secret.key"
    assert secret_conf(settings) == {name: "s3cret", "spark.hadoop.mine": "s3cret"}
    here, there = submit_conf(settings, "local[2]"), submit_conf(settings, "spark://h:7077")
    for conf in (here, there):
        assert conf["spark.driver.host"] == "10.0.0.9"
        assert not [name for name in conf if "secret.key" in name]
        assert re.search(conf["spark.redaction.regex"], "spark.hadoop.mine"), "Spark shows no value"
    assert here["spark.jars"] == "mine.jar"
    assert here["spark.driver.extraClassPath"].endswith(f".jar{os.pathsep}mine.jar")
    assert there["spark.jars"].endswith(".jar,mine.jar")
    assert "spark.hadoop.fs.s3a.secret.key" not in properties("app", settings)


def test_a_driver_says_by_what_it_cannot_log_in() -> None:
    check_login(Settings.load(kafka_properties={"client.id": "flights"}))
    given = {"ssl.certificate.location": "/etc/me.pem", "client.id": "flights"}
    with pytest.raises(ConfigurationError, match=r"ssl\.certificate\.location is"):
        check_login(Settings.load(kafka_properties=given))


def test_what_holdfast_needs_of_spark_stays() -> None:
    same = Settings.load(spark_properties={"spark.sql.adaptive.enabled": False})
    assert submit_conf(same)["spark.sql.adaptive.enabled"] == "false"
    other = Settings.load(spark_properties={"spark.sql.adaptive.enabled": True})
    with pytest.raises(ConfigurationError, match=r"adaptive.*'true'.*needs 'false'"):
        submit_conf(other)
    legacy = Settings.load(spark_properties={"spark.sql.legacy.sizeOfNull": True})
    with pytest.raises(ConfigurationError, match=r"legacy\.sizeOfNull, by which .*remove it"):
        submit_conf(legacy)
