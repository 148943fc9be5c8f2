"""Where the Schema Registry is: settings, secrets from files, what is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from state_lib.config import PREFIX, Settings
from state_lib.errors import ConfigurationError
from state_lib.settings.registry import Registry
from tests.support.secured import certificates

URL = "https://registry:8081"


@pytest.fixture(autouse=True)
def _clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    certificates(tmp_path, tmp_path / "ca.pem")
    (tmp_path / "broken.pem").write_text(
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
    )
    (tmp_path / "password").write_text("from-file\n")


def load(**given: Any) -> Settings:
    return Settings.load(**{f"schema_registry_{name}": value for name, value in given.items()})


def test_without_an_address_there_is_none() -> None:
    assert load().schema_registry() is None


def test_log_in_and_authorities(tmp_path: Path) -> None:
    assert load(url="http://a:1,http://b:2").schema_registry() == Registry("http://a:1,http://b:2")
    found = load(
        url=URL, username="u", password="p", password_file="password", ssl_ca="ca.pem"
    ).schema_registry()
    assert found == Registry(URL, "u", "from-file", (tmp_path / "ca.pem").read_text())
    assert "from-file" not in repr(found)


def test_it_is_in_the_section_of_kafka(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text(f'[kafka]\nschema_registry_url = "{URL}"\n')
    assert Settings.load().schema_registry() == Registry(URL)
    (tmp_path / "holdfast.toml").write_text(f'[driver]\nschema_registry_url = "{URL}"\n')
    with pytest.raises(ConfigurationError, match=r"belongs into the section \[kafka\]"):
        Settings.load()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"url": "registry:8081"}, "http://host:port"),
        ({"url": "https://"}, "http://host:port"),
        ({"url": "https://registry:http"}, "http://host:port"),
        ({"url": "https://registry:99999"}, "http://host:port"),
        ({"url": URL, "username": "u:v", "password": "p"}, "colon"),
        ({"url": URL, "unknown": "forget"}, "dead-letter"),
        ({"fallback": "lost.json"}, "schema_registry_url is not set"),
        ({"url": "https://u:p@registry"}, "schema_registry_password_file"),
        ({"url": URL, "username": "u"}, "go together"),
        ({"url": URL, "password_file": "password"}, "go together"),
        ({"url": "http://registry", "ssl_ca": "ca.pem"}, "write https"),
        ({"username": "u", "password": "p"}, "schema_registry_url is not set"),
    ],
)
def test_what_does_not_fit_together_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as refused:
        load(**given)
    assert "u:p" not in refused.value.message


@pytest.mark.parametrize("name", ["password_file", "ssl_ca"])
def test_a_file_that_cannot_be_read_is_named(name: str) -> None:
    login = {"username": "u", "password": "p"} if name == "password_file" else {}
    settings = load(url=URL, **login, **{name: "nowhere"})
    with pytest.raises(ConfigurationError, match=f"HOLDFAST_SCHEMA_REGISTRY_{name.upper()}"):
        settings.schema_registry()


def test_authorities_that_are_none_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"SSL_CA=.*broken\.pem holds no certificate"):
        load(url=URL, ssl_ca="broken.pem").schema_registry()


def test_schemas_that_a_registry_has_lost(tmp_path: Path) -> None:
    file = tmp_path / "lost.json"
    file.write_text('{"7": {"type": "string"}, "8": ["\\"int\\"", "\\"long\\""], "9": "\\"int\\""}')
    found = load(url=URL, fallback=str(file)).schema_registry()
    assert found is not None
    assert found.fallback == (
        (7, ('{"type":"string"}',)), (8, ('"int"', '"long"')), (9, ('"int"',)),
    )  # fmt: skip
    for wrong in ("[]", "{", '{"x": "int"}'):
        file.write_text(wrong)
        with pytest.raises(ConfigurationError, match="no JSON of schemas by id"):
            load(url=URL, fallback=str(file)).schema_registry()
    with pytest.raises(ConfigurationError, match=r"FALLBACK=.*cannot be read"):
        load(url=URL, fallback="nowhere").schema_registry()
