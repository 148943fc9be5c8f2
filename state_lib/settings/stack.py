"""``[stack]``: folders, logs and reports of this machine, and the stack of ``holdfast up``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field, PositiveInt, SecretStr, field_validator

from state_lib.errors import ConfigurationError
from state_lib.kafka_login import read_secret
from state_lib.settings.kafka import KAFKA_PORT
from state_lib.settings.kinds import AbsolutePath, Port

# Below the range from which kernels choose ports for outgoing connections.
AIRFLOW_PORT = 28080
CONTROLLER_PORT = 28093
# Databases for which Holdfast installs drivers.
_DATABASE = re.compile(r"(postgresql(\+psycopg2)?|sqlite)://")
_NEEDED = "a URL such as postgresql://user:password@host/database is needed"


class StackSettings(BaseModel):
    """The section ``[stack]``."""

    home: AbsolutePath = Field(
        Path(".holdfast"),
        description="Directory of all local state: brokers' data, stores, logs. Made absolute.",
    )
    jars_dir: AbsolutePath | None = Field(
        None, description="Directory of JVM artifacts. Default: holdfast/jars in the user's cache."
    )
    jobs_dir: AbsolutePath = Field(
        Path("jobs"), description="Directory of job files. Made absolute."
    )
    dags_dir: AbsolutePath = Field(
        Path("dags"), description="Directory of DAG files. Made absolute."
    )
    reports_url: str = Field(
        "",
        description="Where audits, drills and capacity reports are kept: as `snapshots_url`; "
        "Airflow's workers and triggerers must see the same. Default: reports in `home`.",
    )
    reports_kept: PositiveInt = Field(
        30, description="How many reports of a kind are kept of each application."
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "INFO", description="Least severe level that is logged."
    )
    kafka_port: Port = Field(KAFKA_PORT, description="Port of the local broker, for clients.")
    kafka_controller_port: Port = Field(
        CONTROLLER_PORT, description="Port of the local broker's KRaft controller."
    )
    kafka_heap: str = Field("1g", description="Greatest heap of the local broker, as in -Xmx.")
    airflow: bool = Field(default=True, description="Whether the local stack has an Airflow.")
    airflow_port: Port = Field(AIRFLOW_PORT, description="Port of Airflow's pages and API.")
    airflow_db: SecretStr | None = Field(
        None, description="URL of Airflow's database, postgresql://... Default: SQLite in the home."
    )
    airflow_db_file: AbsolutePath | None = Field(
        None, description="File that holds that URL; wins over `airflow_db`. Made absolute."
    )
    airflow_open_admin: bool = Field(
        default=False, description="Let everyone on this machine into Airflow, without a password."
    )

    @field_validator("airflow_db")
    @classmethod
    def _usable(cls, url: SecretStr | None) -> SecretStr | None:
        if url is None or _DATABASE.match(url.get_secret_value()):
            return url
        raise ValueError(_NEEDED)

    def read_airflow_db(self) -> str | None:
        """The URL of Airflow's database, its password included; None: SQLite in the home.

        Raises:
            ConfigurationError: ``airflow_db_file`` cannot be read, or holds no such URL.
        """
        if self.airflow_db_file is None:
            return self.airflow_db.get_secret_value() if self.airflow_db else None
        url = read_secret(self.airflow_db_file, "HOLDFAST_AIRFLOW_DB_FILE")
        if not _DATABASE.match(url):
            message = f"HOLDFAST_AIRFLOW_DB_FILE {self.airflow_db_file}: {_NEEDED}"
            raise ConfigurationError(message, path=str(self.airflow_db_file))
        return url
