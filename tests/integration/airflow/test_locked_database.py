"""Airflow's database is locked for longer than it waits, and a driver dies meanwhile."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest

from state_lib.stack.airflow import AirflowHome
from state_lib.stack.airflow.config import SQLITE_WAIT_S
from tests.support.airflow_stack import WITHIN_S
from tests.support.live_airflow import live_streams
from tests.support.waiting import until

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]
APP = "locked"


def test_the_stream_goes_on_and_its_run_too(tmp_path: Path) -> None:
    with live_streams(tmp_path, APP) as live:
        run = live.start(APP)
        live.commits(APP)
        until(lambda: live.task(APP)[0] == "deferred", WITHIN_S)
        file = AirflowHome(live.stack.settings.airflow_home).database
        lock = sqlite3.connect(file, isolation_level=None, timeout=60)
        try:
            lock.execute("BEGIN EXCLUSIVE")
            began = time.monotonic()
            going = live.driver(APP)
            # Airflow's trouble is not the driver's.
            live.sight(APP, lambda s: s.batch_number > going.batch_number, 30)
            before = live.kill(APP)
            while time.monotonic() - began < SQLITE_WAIT_S + 15:
                time.sleep(1)  # the one time that is waited for: it is what the test is about
            lock.execute("ROLLBACK")
        finally:
            lock.close()
        after = live.commits(APP, other_than=before.driver)
        assert len(after.drivers) == 1
        until(lambda: live.task(APP)[0] == "deferred", 2 * WITHIN_S)
        assert live.run(APP).id == run.id
