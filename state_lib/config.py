"""Settings, from the environment and from ``holdfast.toml`` in the working directory.

Flags win over ``HOLDFAST_*`` variables, and those over the file. Without ``bootstrap_servers`` the
local stack is meant: one broker on ``kafka_port``, so ``replication_factor`` is 1 there and 3
everywhere else. Nothing weakens a real cluster's topics by default.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    ByteSize,
    Field,
    PositiveInt,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from state_lib.addresses import HostAddress, parse_hosts
from state_lib.errors import ConfigurationError
from state_lib.kafka_login import LoginSettings, read_secret

PREFIX = "HOLDFAST_"
FILE = "holdfast.toml"
# Below the range from which kernels choose ports for outgoing connections.
AIRFLOW_PORT = 28080
KAFKA_PORT = 28092
CONTROLLER_PORT = 28093
HOSTS = "host-1=127.0.0.1:28815/28816,host-2=127.0.0.1:28825/28826"
MIB = 1 << 20

# What Airflow runs on with the drivers that Holdfast installs.
_DATABASE = re.compile(r"(postgresql(\+psycopg2)?|sqlite)://")

Port = Annotated[int, Field(ge=1, le=65535)]
Seconds = Annotated[float, Field(gt=0)]


class Settings(LoginSettings, BaseSettings):
    """Everything that can be set. Use `Settings.load`, whose errors are Holdfast's own."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        toml_file=FILE,
        extra="forbid",
        frozen=True,
        env_ignore_empty=True,
        hide_input_in_errors=True,  # it may be a secret
    )

    home: Path = Field(
        Path(".holdfast"),
        description="Directory of all local state: brokers' data, stores, logs. Made absolute.",
    )
    jars_dir: Path | None = Field(
        None, description="Directory of JVM artifacts. Default: holdfast/jars in the user's cache."
    )
    bootstrap_servers: str = Field(
        f"127.0.0.1:{KAFKA_PORT}",
        description="Kafka brokers, host:port by commas. Default: the local stack's broker.",
    )
    kafka_port: Port = Field(KAFKA_PORT, description="Port of the local broker, for clients.")
    kafka_controller_port: Port = Field(
        CONTROLLER_PORT, description="Port of the local broker's KRaft controller."
    )
    kafka_heap: str = Field("1g", description="Greatest heap of the local broker, as in -Xmx.")
    hosts: str = Field(
        HOSTS,
        description="State hosts: id=address:flight-port/http-port, separated by commas.",
    )
    token: SecretStr | None = Field(
        None, description="Bearer token of the hosts. None: no token, for loopback only."
    )
    token_file: Path | None = Field(
        None, description="File that holds the token; wins over `token`. Made absolute."
    )
    replication_factor: PositiveInt = Field(
        3, description="Replicas of topics that are created. Default: 3, local stack: 1."
    )
    block_cache_bytes: ByteSize = Field(
        ByteSize(256 * MIB),
        description="RocksDB's block cache of one host, shared by its tasks, in bytes (or '1GiB').",
    )
    write_buffer_bytes: ByteSize = Field(
        ByteSize(128 * MIB),
        description="RocksDB's memtables of one host, all tasks together, in bytes (or '1GiB').",
    )
    flush_interval_s: Seconds = Field(
        60.0, description="Longest time between flushes of a task, in s: bounds what is replayed."
    )
    snapshots_url: str = Field(
        "",
        description="Where snapshots are kept: a directory or any URL that fsspec knows, "
        "s3://bucket/prefix for example. Default: snapshots in `home`.",
    )
    reports_url: str = Field(
        "",
        description="Where audits, drills and capacity reports are kept: as `snapshots_url`; "
        "Airflow's workers and triggerers must see the same. Default: reports in `home`.",
    )
    reports_kept: PositiveInt = Field(
        30, description="How many reports of a kind are kept of each application."
    )
    restore_mode: Literal["auto", "orchestrated"] = Field(
        "auto",
        description="What a host does about a lost store: restore it by the plan, or report it and "
        "wait for Airflow's restore DAG or `holdfast restore run`. In a local stack with Airflow: "
        "orchestrated.",
    )
    num_restore_workers: Annotated[int, Field(ge=0, le=64)] = Field(
        min(4, os.cpu_count() or 1),
        description="Processes that read long changelogs of one host beside each other; each takes "
        "up to 200 MB. 0: the host reads by itself.",
    )
    restore_batch_size: PositiveInt = Field(
        5_000, description="Records that a restore reads at once."
    )
    max_future_s: Seconds = Field(
        3600.0,
        description="Records dated further ahead of the wall clock, in s, go to the dead letters.",
    )
    jobs_dir: Path = Field(Path("jobs"), description="Directory of job files. Made absolute.")
    spark_master: str = Field(
        "local[2,4]", description="Spark's master; the second number is tries per task."
    )
    executor_archive: Path | None = Field(
        None,
        description="Archive of `holdfast pack` that Spark ships to executors without Holdfast. "
        "Made absolute.",
    )
    executor_python: str = Field(
        f"python3.{sys.version_info.minor}",
        description="Python of executors that get the archive: of the driver's minor version.",
    )
    driver_memory: str = Field("2g", description="Heap of Spark's driver, as in -Xmx.")
    driver_java_options: str = Field(
        "-XX:+UseParallelGC", description="JVM flags of Spark's driver: it wants throughput."
    )
    max_offsets_per_trigger: PositiveInt = Field(
        4_000_000, description="Most records in one batch."
    )
    first_offsets_per_trigger: PositiveInt = Field(
        50_000,
        description="Most records in a stream's first batch, whose JVM is cold, and in the next "
        "one after a calm minute.",
    )
    max_bytes_per_trigger: ByteSize = Field(
        ByteSize(256 * MIB),
        description="Most bytes in one batch: of keys and values, by the size of a few of them.",
    )
    batch_target_s: Seconds = Field(
        4.0,
        description="What a batch of a stream that catches up should take, in s: batches grow and "
        "shrink by it, within the two bounds.",
    )
    spark_ui_port: Port = Field(24040, description="Port of Spark's own page; the next free one.")
    exchange_timeout_s: Seconds = Field(
        300.0,
        description="How long a batch's exchange with a host may take, in s: also how long a "
        "driver waits while no task can be reached.",
    )
    park_after_s: Seconds = Field(
        10.0,
        description="How long all tasks wait for one whose host is away or restores it, in s; then "
        "the stream goes on without it, and it catches up when it is back.",
    )
    stop_timeout_s: Seconds = Field(
        60.0,
        description="How long a driver that is asked to stop finishes its batch, in s; one that "
        "takes longer, because a host is away for example, is left to the next driver.",
    )
    max_restarts: PositiveInt = Field(
        10, description="How often in a row a driver starts its stream again before it gives up."
    )
    accept_new_code: str = Field(
        "",
        description="Fingerprint of a job's former code: a batch that it left half done may be "
        "finished by the present code, although rows may be lost or counted twice.",
    )
    airflow: bool = Field(default=True, description="Whether the local stack has an Airflow.")
    airflow_port: Port = Field(AIRFLOW_PORT, description="Port of Airflow's pages and API.")
    airflow_db: SecretStr | None = Field(
        None, description="URL of Airflow's database, postgresql://... Default: SQLite in the home."
    )
    airflow_open_admin: bool = Field(
        default=False, description="Let everyone on this machine into Airflow, without a password."
    )
    dags_dir: Path = Field(Path("dags"), description="Directory of DAG files. Made absolute.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "INFO", description="Least severe level that is logged."
    )

    @classmethod
    def load(cls, **flags: Any) -> Self:
        """Read all sources; ``flags`` that are not None win, a token over any other's file.

        Raises:
            ConfigurationError: naming every wrong setting and the value seen.
        """
        given = {name: value for name, value in flags.items() if value is not None}
        if "token" in given and "token_file" not in given:
            given["token_file"] = None  # which would win, and is of somebody who says less
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
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)

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

    @field_validator("home", "token_file", "jars_dir", "jobs_dir", "dags_dir", "executor_archive")
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        return path.expanduser().absolute() if path else None

    @model_validator(mode="after")
    def _kept_at_home(self) -> Self:
        for name in ("snapshots", "reports"):
            url = getattr(self, f"{name}_url")
            if "://" not in url:
                path = Path(url or self.home / name).expanduser().absolute()
                # Not `as_uri`: fsspec takes the rest as it is.
                object.__setattr__(self, f"{name}_url", f"file://{path}")
        return self

    @field_validator("hosts")
    @classmethod
    def _parsable(cls, hosts: str) -> str:
        try:
            parse_hosts(hosts)
        except ConfigurationError as error:
            raise ValueError(error.message) from error
        return hosts

    @field_validator("airflow_db")
    @classmethod
    def _usable(cls, url: SecretStr | None) -> SecretStr | None:
        if url is None or _DATABASE.match(url.get_secret_value()):
            return url
        message = "a URL such as postgresql://user:password@host/database is needed"
        raise ValueError(message)

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
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)


def _explain(error: dict[str, Any]) -> str:
    where = ".".join(map(str, error["loc"])) or "settings"
    hint = f" or {PREFIX}{where.upper()}" if PREFIX + where.upper() in os.environ else ""
    # Among the input of all settings are secrets, and an unknown name may be a secret's, misspelt.
    hidden = where == "settings" or error["type"] == "extra_forbidden" or is_secret(where)
    seen = "" if hidden else f" (seen: {error['input']!r})"
    return f"{where}{hint}: {error['msg'].removeprefix('Value error, ')}{seen}"
