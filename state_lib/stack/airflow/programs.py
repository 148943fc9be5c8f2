"""Airflow's four processes. They start together: only the database has to be there before."""

from __future__ import annotations

import sys

from state_lib.config import Settings
from state_lib.stack import probes
from state_lib.stack.airflow.database import prepare
from state_lib.stack.airflow.home import ADDRESS, base_url
from state_lib.stack.program import Port, Program

API_SERVER = "airflow-api-server"
PRIORITY = 300
STOP_WAIT_S = 10  # an api-server with an open page takes longer; killing it is harmless
# Log servers would listen on every interface; here the api-server reads the files themselves.
_QUIET = "--skip-serve-logs"
# Name in the health report, and the module to run.
COMPONENTS = {
    "airflow-scheduler": ("scheduler", ("state_lib.stack.airflow.scheduler", _QUIET)),
    "airflow-dag-processor": ("dag_processor", ("airflow", "dag-processor")),
    "airflow-triggerer": ("triggerer", ("airflow", "triggerer", _QUIET)),
}


def programs(settings: Settings) -> tuple[Program, ...]:
    """The api-server, scheduler, DAG processor and triggerer."""
    url = base_url(settings)
    port = Port(ADDRESS, settings.airflow_port, "HOLDFAST_AIRFLOW_PORT")

    def program(name: str, component: str | None, *arguments: str) -> Program:
        return Program(
            name=name,
            priority=PRIORITY,
            ports=() if component else (port,),
            stop_wait_s=STOP_WAIT_S,
            command=lambda: [sys.executable, "-m", *arguments],
            prepare=lambda: prepare(settings),
            healthy=lambda started: probes.airflow(url, component, started),
        )

    others = (program(name, word, *args) for name, (word, args) in COMPONENTS.items())
    return (program(API_SERVER, None, "airflow", "api-server"), *others)
