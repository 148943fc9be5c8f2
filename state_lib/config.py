"""Settings, from the environment and from ``holdfast.toml`` in the working directory.

Flags win over ``HOLDFAST_*`` variables, and those over the file, where each setting stands in its
section (`state_lib.settings`). Without ``bootstrap_servers`` the local stack is meant: one broker
on ``kafka_port``, so ``replication_factor`` is 1 there and 3 everywhere else. Nothing weakens a
real cluster's topics by default.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Self, get_args

from pydantic import SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from state_lib.errors import ConfigurationError
from state_lib.kafka_login import read_secret
from state_lib.protocol.addresses import HostAddress, parse_hosts
from state_lib.settings import (
    PROPERTIES,
    DriverSettings,
    HostSettings,
    KafkaSettings,
    StackSettings,
)
from state_lib.settings.file import SectionedFile
from state_lib.settings.kafka import KAFKA_PORT

PREFIX = "HOLDFAST_"
FILE = "holdfast.toml"


class Settings(KafkaSettings, HostSettings, DriverSettings, StackSettings, BaseSettings):
    """Everything that can be set. Use `Settings.load`, whose errors are Holdfast's own."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        toml_file=FILE,
        extra="forbid",
        frozen=True,
        env_ignore_empty=True,
        hide_input_in_errors=True,  # it may be a secret
    )

    @classmethod
    def load(cls, **flags: Any) -> Self:
        """Read all sources; ``flags`` that are not None win, a secret over any other's file.

        Raises:
            ConfigurationError: naming every wrong setting and the value seen.
        """
        given = {name: value for name, value in flags.items() if value is not None}
        for secret in {"token", "airflow_db"} & given.keys():
            # Else a file from a weaker source would take precedence.
            given.setdefault(f"{secret}_file", None)
        try:
            return cls(**given)
        except ValidationError as error:
            wrong = [_explain(dict(one)) for one in error.errors(include_url=False)]
            message = f"{'; '.join(wrong)}. Correct it in the environment, {FILE} or the flag."
            raise ConfigurationError(message, settings=wrong) from error

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags, environment, file; no dotenv and no secrets directory."""
        del dotenv_settings, file_secret_settings
        return init_settings, env_settings, SectionedFile(settings_cls)

    @model_validator(mode="before")
    @classmethod
    def _default_to_the_local_stack(cls, data: dict[str, Any]) -> dict[str, Any]:
        if not data.get("bootstrap_servers"):
            if data.get("kafka_security_protocol", "PLAINTEXT") != "PLAINTEXT":
                raise ValueError(
                    "kafka_security_protocol is for brokers of your own: name them in "
                    "bootstrap_servers (the local stack's broker speaks PLAINTEXT, on loopback)"
                )
            port = data.get("kafka_port", KAFKA_PORT)
            data = {"replication_factor": 1, **data, "bootstrap_servers": f"127.0.0.1:{port}"}
        return data

    @model_validator(mode="after")
    def _kept_at_home(self) -> Self:
        for name in ("snapshots", "reports"):
            url = getattr(self, f"{name}_url")
            if "://" not in url:
                path = Path(url or self.home / name).expanduser().absolute()
                # Not `as_uri`: fsspec does not decode percent signs.
                object.__setattr__(self, f"{name}_url", f"file://{path}")
        return self

    @property
    def airflow_home(self) -> Path:
        """``AIRFLOW_HOME`` of the local stack's Airflow."""
        return self.home / "airflow"

    @property
    def host_addresses(self) -> tuple[HostAddress, ...]:
        """``hosts``, parsed."""
        return parse_hosts(self.hosts)

    def host_address(self, host_id: str) -> HostAddress:
        """One host of ``hosts``.

        Raises:
            ConfigurationError: no host has this id.
        """
        for address in self.host_addresses:
            if address.id == host_id:
                return address
        message = f"no host {host_id!r} in HOLDFAST_HOSTS, which is {self.hosts!r}. Add it there."
        raise ConfigurationError(message, host=host_id, hosts=self.hosts)

    def restore_workers(self, at: HostAddress) -> int:
        """Processes of one host that read changelogs; the hosts of one machine share its cores."""
        if self.num_restore_workers is not None:
            return self.num_restore_workers
        here = sum(other.host == at.host for other in self.host_addresses)
        return max(1, min(4, (os.cpu_count() or 1) // max(1, here)))

    @property
    def min_insync_replicas(self) -> int:
        """Replicas that must have a record before it counts: all but one, at least one."""
        return max(1, self.replication_factor - 1)

    def read_token(self) -> str | None:
        """The token, None when none is configured.

        Raises:
            ConfigurationError: ``token_file`` is missing, unreadable or empty. It never falls back
                to ``token`` or to none, which would open what was meant to be closed.
        """
        if self.token_file is not None:
            return read_secret(self.token_file, "HOLDFAST_TOKEN_FILE")
        return self.token.get_secret_value() if self.token else None

    def as_environment(self) -> dict[str, str]:
        """All settings as variables, so that a child process sees the same, whatever its folder."""
        return {
            PREFIX + name.upper(): _plain(value)
            for name, value in self.model_dump().items()
            if value is not None
        }


def is_secret(name: str) -> bool:
    """Whether a setting's value must not be shown."""
    field = Settings.model_fields.get(name)
    return field is not None and SecretStr in get_args(field.annotation)


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return json.dumps(value)
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)


def _explain(error: dict[str, Any]) -> str:
    where = ".".join(map(str, error["loc"])) or "settings"
    hint = f" or {PREFIX}{where.upper()}" if PREFIX + where.upper() in os.environ else ""
    # The input has secrets, also under unknown names: a secret's name may be misspelt.
    whole = where in ("settings", *PROPERTIES.values())
    hidden = whole or error["type"] == "extra_forbidden" or is_secret(where)
    seen = "" if hidden else f" (seen: {error['input']!r})"
    return f"{where}{hint}: {error['msg'].removeprefix('Value error, ')}{seen}"
