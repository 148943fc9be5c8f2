"""Airflow's database: migrated once, with the connections that the stack's DAGs use."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import version

from state_lib.config import Settings
from state_lib.errors import ConfigurationError, Unavailable
from state_lib.stack.airflow import config
from state_lib.stack.airflow.connections import wanted
from state_lib.stack.airflow.home import AirflowHome

MIGRATE_TIMEOUT_S = 600
CONNECT_TIMEOUT_S = 5
POSTGRES_DRIVERS = ("psycopg2", "asyncpg")  # Airflow uses both
SAID_LINES = 15


@dataclass(frozen=True)
class Found:
    """What is in the database: its revision, None if it is empty, and ids of connections."""

    revision: str | None
    connections: frozenset[str]


@dataclass(frozen=True)
class Prepared:
    """Which Airflow brought the database to which revision."""

    airflow: str
    revision: str | None


def prepare(settings: Settings) -> None:
    """Write the configuration; migrate the database and add connections, unless that was done.

    A connection that exists is left as it is, whoever made it: what a person sets on Airflow's page
    holds. Callers must not run this twice at the same time for one home (`Stack` holds a lock).

    Raises:
        Unavailable: the database does not answer, or Airflow takes too long with it.
        ConfigurationError: Airflow could not migrate it; its words are in the message.
    """
    home = config.write(settings)
    found = look(settings)
    if _is_prepared(home, settings, found):
        return
    environment = config.environment(settings, os.environ)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "state_lib.stack.airflow.migrate"],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=MIGRATE_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        message = (
            f"Airflow has not prepared its database {shown(settings)} in {MIGRATE_TIMEOUT_S} s. Is "
            "it locked, or the machine very busy? Run 'holdfast up' again; it goes on from there."
        )
        raise Unavailable(message, database=shown(settings)) from error
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-SAID_LINES:])
        message = (
            f"Airflow could not prepare its database {shown(settings)}:\n{said}\n"
            "Correct the cause, or choose another database with HOLDFAST_AIRFLOW_DB."
        )
        raise ConfigurationError(message, database=shown(settings))
    stamp = Prepared(version("apache-airflow"), look(settings).revision)
    home.prepared.write_text(json.dumps(asdict(stamp)) + "\n")


def shown(settings: Settings) -> str:
    """The database's URL without its password."""
    from sqlalchemy import make_url  # noqa: PLC0415 - 0.2 s, `holdfast status` has no use for it

    return make_url(config.database_url(settings)).render_as_string(hide_password=True)


def look(settings: Settings) -> Found:
    """Ask the database itself, without Airflow, whose import takes seconds.

    Raises:
        Unavailable: it does not answer.
        ConfigurationError: its drivers are not installed.
    """
    from sqlalchemy import create_engine, inspect, make_url, text  # noqa: PLC0415 - as above
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415

    url = make_url(config.database_url(settings))
    local = url.get_backend_name() == "sqlite"
    if local and not AirflowHome(settings.airflow_home).database.exists():
        return Found(None, frozenset())  # connecting would create it
    if not local:
        _require_drivers()
    engine = create_engine(
        url, connect_args={} if local else {"connect_timeout": CONNECT_TIMEOUT_S}
    )
    try:
        with engine.connect() as connection:
            tables = inspect(connection).get_table_names()
            if not {"alembic_version", "connection"} <= set(tables):
                return Found(None, frozenset())
            revision = connection.scalar(text("SELECT version_num FROM alembic_version"))
            ids = connection.scalars(text("SELECT conn_id FROM connection")).all()
            return Found(revision, frozenset(ids))
    except (SQLAlchemyError, OSError) as error:
        reason = str(getattr(error, "orig", None) or error).strip()
        message = (
            f"Airflow's database {shown(settings)} does not answer: {reason}. Start it, or correct "
            "HOLDFAST_AIRFLOW_DB (without it, SQLite below the stack's home is used)."
        )
        raise Unavailable(message, database=shown(settings)) from error
    finally:
        engine.dispose()


def _require_drivers() -> None:
    missing = [name for name in POSTGRES_DRIVERS if importlib.util.find_spec(name) is None]
    if missing:
        message = (
            f"Airflow on PostgreSQL needs {' and '.join(missing)}. Install them: "
            "pip install 'holdfast[postgres]'."
        )
        raise ConfigurationError(message, missing=missing)


def _is_prepared(home: AirflowHome, settings: Settings, found: Found) -> bool:
    try:
        stamp = Prepared(**json.loads(home.prepared.read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return False
    ids = {connection.id for connection in wanted(settings)}
    expected = Prepared(version("apache-airflow"), found.revision)
    return found.revision is not None and stamp == expected and ids <= found.connections
