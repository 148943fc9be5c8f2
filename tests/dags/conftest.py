"""Airflow's own harness: a migrated database, the whole bag of DAGs; and a real stack to run on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import structlog
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.models import Connection
from airflow.sdk import DAG
from airflow.sdk.execution_time.supervisor import (
    InProcessSupervisorComms,
    InProcessTestSupervisor,
    set_supervisor_comms,
)
from airflow.utils.session import create_session
from sqlalchemy import delete

from state_lib import processes
from state_lib.config import Settings
from state_lib.drivers.identity import ID_VARIABLE
from state_lib.drivers.look import Looker
from state_lib.drivers.process import DriverProcess, launch
from state_lib.drivers.sight import Sight
from state_lib.kafka import Kafka
from state_lib.stack import Stack
from state_lib.stack.paths import Paths
from state_lib.stack.ports import free_port
from tests.support import airflow_home, jvm
from tests.support.environment import set_environment
from tests.support.waiting import deadline_in

Connect = Callable[..., None]


@pytest.fixture(scope="session")
def database() -> None:
    """Airflow's tables, in SQLite."""
    airflow_home.migrate()
    DagBundlesManager().sync_bundles_to_db()  # type: ignore[no-untyped-call]


@pytest.fixture(scope="session")
def bag(database: None) -> BundleDagBag:  # noqa: ARG001 - it must be there
    """All DAG files, as the DAG processor reads them."""
    folder = airflow_home.ROOT / "dags"
    return BundleDagBag(
        dag_folder=folder, bundle_path=folder, bundle_name=airflow_home.AIRFLOW_BUNDLE
    )


@pytest.fixture
def api(database: None) -> Iterator[None]:  # noqa: ARG001 - it must be there
    """Airflow's execution API in this process: what tasks and triggers speak to."""
    supervisor = InProcessTestSupervisor(
        id=uuid.uuid4(),
        pid=os.getpid(),
        process=psutil.Process(),  # type: ignore[arg-type] # as Airflow's own callers do
        process_log=structlog.get_logger("task"),
        client=InProcessTestSupervisor._api_client(),  # type: ignore[no-untyped-call]
    )
    supervisor.comms = InProcessSupervisorComms(supervisor=supervisor)
    with set_supervisor_comms(supervisor.comms):
        yield


@pytest.fixture
def connect(api: None) -> Iterator[Connect]:  # noqa: ARG001 - connections are asked for through it
    """Sets a connection, Spark's by itself, as somebody would in Admin, Connections.

    None is left: the next test would see this one's hosts instead of its own settings.
    """
    made = set[str]()

    def connect(host: str, conn_id: str = "spark_default", **fields: Any) -> None:
        made.add(conn_id)
        with create_session() as session:
            session.execute(delete(Connection).where(Connection.conn_id == conn_id))
            fields = {"conn_type": "spark", **fields}
            session.add(Connection(conn_id=conn_id, host=host, **fields))

    yield connect
    with create_session() as session:
        session.execute(delete(Connection).where(Connection.conn_id.in_(made)))


def scripted_dag(dag_id: str) -> DAG:
    """One of the tests' own, read anew as by each worker: a run's parameters stay in its DAG."""
    folder = airflow_home.SCRIPTED
    bag = BundleDagBag(dag_folder=folder, bundle_path=folder, bundle_name="scripted")
    return bag.dags[dag_id]


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A broker, for all tests of DAGs; its state hosts start when a test asks for `hosts`."""
    hosts = ",".join(f"host-{i}=127.0.0.1:{free_port()}/{free_port()}" for i in (1, 2))
    settings = Settings.load(
        home=tmp_path_factory.mktemp("dags") / "home",
        hosts=hosts,
        kafka_port=free_port(),
        kafka_controller_port=free_port(),
        kafka_heap="384m",
        spark_ui_port=free_port(),
        driver_memory="512m",
        driver_java_options=jvm.options(jvm.QUICK),
        token="of-the-tests",
        airflow=False,
        restore_mode="orchestrated",
        jobs_dir=airflow_home.ROOT / "jobs",
    )
    made = Stack(settings)
    try:
        made.up(only=["kafka"])
        yield made
    finally:
        made.down()


@pytest.fixture(scope="session")
def hosts(stack: Stack) -> None:
    """The state hosts, for streams of real Spark."""
    stack.up()


@pytest.fixture
def settings(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings of the stack, which this process sees as its own for the time of a test."""
    set_environment(monkeypatch, stack.settings)
    return stack.settings


class Scripts:
    """Drivers without Spark, which do what a file says; ends those that a test leaves behind."""

    def __init__(self, folder: Path, settings: Settings, bag: BundleDagBag) -> None:
        self._folder, self.settings, self.bag = folder, settings, bag
        self.kafka = Kafka.of(settings)
        self._started: list[DriverProcess] = []

    def says(self, app: str, what: str) -> None:
        """What drivers of this application do from now on."""
        (self._folder / app).write_text(what)

    def dag(self, app: str) -> DAG:
        """The DAG that supervises it."""
        return self.bag.dags[f"{app}_stream"]

    def launch(self, app: str, job: Path = airflow_home.SCRIPTED / "job.py") -> DriverProcess:
        """Start a driver beside Airflow."""
        log = Paths(self.settings.home).log(app)
        command = [sys.executable, str(job)]
        environment = {**os.environ, "SCRIPTED_APP": app}
        self._started.append(launch(app, command, env=environment, log=log))
        return self._started[-1]

    def by_hand(self, app: str) -> subprocess.Popen[bytes]:
        """Start a driver as a person does: nothing marks its process."""
        environment = {**os.environ, "SCRIPTED_APP": app}
        environment.pop(ID_VARIABLE, None)
        command = [sys.executable, str(airflow_home.SCRIPTED / "job.py")]
        return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)

    def sight(self, app: str, enough: Callable[[Sight], bool], timeout_s: float = 90) -> Sight:
        """Look until it is so."""
        looker = Looker(self.settings, app)
        try:
            deadline = deadline_in(timeout_s)
            while not enough(sight := looker.look()):
                assert time.monotonic() < deadline, sight
                time.sleep(0.2)
            return sight
        finally:
            looker.close()

    def commits(self, app: str, *, other_than: str | None = None) -> Sight:
        """Look until a driver commits."""
        return self.sight(app, lambda s: s.batch_number > 0 and s.driver != other_than)

    def end(self) -> None:
        """End what this test launched, and what Airflow launched for it."""
        left = [p for p in processes.marked("SCRIPTED", str(self._folder)) if p.pid != os.getpid()]
        for process in left:
            process.kill()


@pytest.fixture
def scripts(
    settings: Settings, connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Scripts]:
    folder = airflow_home.SCRIPTED
    monkeypatch.setenv("SCRIPTED", str(tmp_path))
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{folder}")
    connect("local[1,2]", "scripted", extra={"spark-binary": "spark3-submit"})
    bag = BundleDagBag(dag_folder=folder, bundle_path=folder, bundle_name="scripted")
    made = Scripts(tmp_path, settings, bag)
    yield made
    made.end()
