"""A local stack with Airflow's processes, and one DAG that looks around and launches a driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from state_lib.client.airflow import FINAL, Airflow, Run
from state_lib.config import Settings
from state_lib.stack import Stack
from state_lib.stack.airflow import API_SERVER, AirflowHome
from state_lib.stack.airflow.programs import COMPONENTS
from state_lib.stack.ports import free_port
from tests.support.waiting import SLOWNESS, until

SERVICES = (API_SERVER, *COMPONENTS)
WITHIN_S = 120
DRIVER = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path(sys.argv[1], "edge").touch(), sys.exit()))
pathlib.Path(sys.argv[1], "ready").touch()
while True:
    time.sleep(1)
"""
DAG = f"""
import os, sys
from pathlib import Path
from airflow.sdk import dag, task

@dag(schedule=None)
def look_around():
    @task
    def look(params=None):
        from state_lib.drivers.process import launch

        folder = Path(params["folder"])
        (folder / "port").write_text(os.environ["HOLDFAST_KAFKA_PORT"])
        command = [sys.executable, "-c", {DRIVER!r}, str(folder)]
        process = launch("test", command, env=os.environ, log=folder / "log")
        (folder / "pid").write_text(str(process.pid))

    look()

look_around()
"""


@contextmanager
def running(home: Path, **flags: object) -> Iterator[Stack]:
    """Airflow's services, with that DAG, until the block ends."""
    (home / "dags").mkdir()
    (home / "dags" / "look_around.py").write_text(DAG)
    made = Stack(settings_in(home, **flags))
    try:
        made.up(only=SERVICES, timeout_s=WITHIN_S * SLOWNESS)
        yield made
    finally:
        made.down()


def settings_in(home: Path, **flags: object) -> Settings:
    ports = {name: free_port() for name in ("kafka_port", "kafka_controller_port", "airflow_port")}
    hosts = f"host-1=127.0.0.1:{free_port()}/{free_port()}"
    given = {"home": home / "home", "dags_dir": home / "dags", "hosts": hosts, **ports, **flags}
    return Settings.load(**given)


def client_of(settings: Settings, **waits: float) -> Airflow:
    password = AirflowHome(settings.airflow_home).password()
    return Airflow(f"http://127.0.0.1:{settings.airflow_port}", "admin", password, **waits)


def look_around(airflow: Airflow, folder: Path) -> Run:
    """Run the DAG to its end; ``folder`` takes what it saw."""
    until(lambda: "look_around" in airflow.dags(), WITHIN_S)
    airflow.unpause("look_around")
    run = airflow.trigger("look_around", {"folder": str(folder)})
    until(lambda: airflow.run(run.dag, run.id).state in FINAL, WITHIN_S)
    return airflow.run(run.dag, run.id)
