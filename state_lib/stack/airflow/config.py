"""Airflow's configuration: ``airflow.cfg``, and the environment of everything in the stack."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from state_lib.config import Settings
from state_lib.stack.airflow.connections import wanted
from state_lib.stack.airflow.home import ADDRESS, USER, AirflowHome, base_url, write_private

Sections = dict[str, dict[str, object]]

# Longest wait of one statement for another process' lock on SQLite, in s; the default is 5.
SQLITE_WAIT_S = 60
_DAGS = {
    "name": "dags-folder",
    "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
    "kwargs": {},
}
HEADER = """\
# Written by `holdfast up`, which overwrites it. To tune what Holdfast does not decide, set
# Airflow's own variables, AIRFLOW__SECTION__KEY, before `holdfast up`.
"""


def write(settings: Settings) -> AirflowHome:
    """Make Airflow's home, its secrets and its configuration."""
    home = AirflowHome(settings.airflow_home)
    home.create()
    write_private(home.config, render(settings, home))
    return home


def environment(settings: Settings, base: Mapping[str, str]) -> dict[str, str]:
    """The variables of Airflow's processes, and so of its tasks and of what they launch.

    A variable of ``base`` that would win over what Holdfast decides is left out: somebody else's
    Airflow on the same machine must not lend ours its database. What merely tunes goes through. So
    do connections, but for those that the stack makes: the pages would show one and tasks use
    another.

    Args:
        settings: Of the stack; its tasks see the same.
        base: Variables to start from, such as ``os.environ``.
    """
    own = decisions(settings, AirflowHome(settings.airflow_home))
    secrets = _trust(dict.fromkeys(("fernet", "jwt", "api"), ""))
    decided = {
        f"AIRFLOW__{section}__{key}".upper()
        for section, keys in (*own.items(), *secrets.items())
        for key in (*keys, *(["sql_alchemy_conn_async"] if section == "database" else []))
    }
    decided |= {f"AIRFLOW_CONN_{one.id}".upper() for one in wanted(settings)}
    kept = {
        name: value
        for name, value in base.items()
        if not decided & {name, name.removesuffix("_CMD"), name.removesuffix("_SECRET")}
    }
    programs = str(Path(sys.executable).parent)
    exempt = [one for one in (kept.get("NO_PROXY") or kept.get("no_proxy"), ADDRESS) if one]
    return {
        **kept,
        "PATH": os.pathsep.join([programs, kept.get("PATH", os.defpath)]),  # spark-submit
        "NO_PROXY": ",".join(exempt),  # tasks report to the api-server, not through a proxy
        "no_proxy": ",".join(exempt),
        # A process title would overwrite the environment that marks a process as the stack's.
        "SPT_NOENV": "1",
        "AIRFLOW_HOME": str(settings.airflow_home),
        "AIRFLOW_CONFIG": str(AirflowHome(settings.airflow_home).config),
        **settings.as_environment(),
    }


def render(settings: Settings, home: AirflowHome) -> str:
    """The text of ``airflow.cfg``."""
    keys = json.loads(home.keys.read_text())
    merged: Sections = {}
    for part in (decisions(settings, home), tuning(), _trust(keys)):
        for section, values in part.items():
            merged.setdefault(section, {}).update(values)
    lines = [HEADER]
    for section, values in merged.items():
        lines.append(f"[{section}]")
        # The parser reads a single percent sign as the start of a reference.
        lines += [f"{key} = {str(value).replace('%', '%%')}" for key, value in values.items()]
    return "\n".join(lines) + "\n"


def decisions(settings: Settings, home: AirflowHome) -> Sections:
    """What makes this Airflow the stack's: addresses, folders, who may log in."""
    return {
        "core": {
            "dags_folder": settings.dags_dir,
            "load_examples": False,
            "executor": "LocalExecutor",
            "auth_manager": (
                "airflow.api_fastapi.auth.managers.simple.simple_auth_manager.SimpleAuthManager"
            ),
            "simple_auth_manager_users": f"{USER}:admin",
            "simple_auth_manager_all_admins": settings.airflow_open_admin,
            "simple_auth_manager_passwords_file": home.passwords,
            # The default is port 8080, whatever `port` is.
            "execution_api_server_url": f"{base_url(settings)}/execution/",
        },
        "database": {"sql_alchemy_conn": database_url(settings)},
        "api": {
            "host": ADDRESS,  # the default is every interface
            "port": settings.airflow_port,
            "base_url": base_url(settings),
        },
        # Set although it is the default: a user's variable would take precedence otherwise.
        "dag_processor": {"dag_bundle_config_list": json.dumps([_DAGS])},
        "logging": {"base_log_folder": home.logs},
    }


def tuning() -> Sections:
    """What suits one machine that runs everything."""
    return {
        "core": {
            "parallelism": 8,  # so many worker processes are forked at once, 20 MB each
            "hostname_callable": "socket.gethostname",  # the default asks a name server
            "test_connection": "Enabled",  # the button on a connection's page
        },
        "api": {"workers": 1},
        # Tasks of a killed scheduler are adopted after 30 s without its heartbeat, but by default
        # they are looked for only every 300 s. A task whose worker is gone is run again after 60 s
        # without a heartbeat; by default 300 s, in which nobody would watch a stream.
        "scheduler": {
            "orphaned_tasks_check_interval": 15,
            "task_instance_heartbeat_timeout": 60,
        },
        # A restarted triggerer takes over triggers after so long without a heartbeat of the killed
        # one: until then nobody watches a stream.
        "triggerer": {"job_heartbeat_sec": 3, "triggerer_health_check_threshold": 15},
        "workers": {
            # A busy machine or a restart of the api-server must not fail a task.
            "execution_api_timeout": 60,
            "execution_api_retries": 10,
            "execution_api_retry_wait_max": 10,
            # A worker sees its task's end up to one such interval late, 5 s by default. A task that
            # defers itself and goes on before that is taken for a lost one, and run anew.
            "min_heartbeat_interval": 1,
            "max_failed_heartbeats": 50,
        },
        "dag_processor": {
            "parsing_processes": 1,
            # Interval of looking for new files; changed ones are parsed at once. Unchanged ones are
            # parsed again only for their imports: some twenty files, each in its own process.
            "refresh_interval": 10,
            "min_file_process_interval": 300,
        },
        "logging": {"colored_console_log": False},  # the logs are files
    }


def _trust(keys: dict[str, str]) -> Sections:
    return {
        "core": {"fernet_key": keys["fernet"]},
        "api": {"secret_key": keys["api"]},
        "api_auth": {"jwt_secret": keys["jwt"]},
    }


def database_url(settings: Settings) -> str:
    """The URL of Airflow's database, its password included.

    The driver is named: SQLAlchemy's own choice changed from one version to the next.

    Raises:
        ConfigurationError: the file that should hold it cannot be used.
    """
    url = settings.read_airflow_db()
    if url is not None:
        return url.replace("postgresql://", "postgresql+psycopg2://", 1)
    file = AirflowHome(settings.airflow_home).database
    return f"sqlite:///{file}?timeout={SQLITE_WAIT_S}"
