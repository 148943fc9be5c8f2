"""Streams under all of Airflow's processes: a broker, scripted drivers without Spark, no hosts."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from state_lib import processes
from state_lib.client.airflow import Airflow, Run
from state_lib.drivers.look import Looker
from state_lib.drivers.sight import Sight
from state_lib.kafka import Kafka
from state_lib.stack import Stack
from tests.support.airflow_home import SCRIPTED
from tests.support.airflow_stack import SERVICES, WITHIN_S, client_of, settings_in
from tests.support.waiting import SLOWNESS, deadline_in, until

DAGS = """
from datetime import timedelta
from holdfast_airflow.dags import stream_dag

for name in {apps!r}:
    stream_dag(
        name,
        application={job!r},
        conn_id="scripted",
        env={{"SCRIPTED_APP": name, "SCRIPTED": {folder!r}}},
        retry_delay=timedelta(seconds=1),
    )
"""


class Live:
    """One stack, its Airflow, and what is seen of the streams in it."""

    def __init__(self, stack: Stack, airflow: Airflow, folder: Path) -> None:
        self.stack, self.airflow, self.folder = stack, airflow, folder
        self.kafka = Kafka.of(stack.settings)

    def sight(
        self, app: str, enough: Callable[[Sight], bool], timeout_s: float = WITHIN_S
    ) -> Sight:
        """Look until it is so."""
        looker = Looker(self.stack.settings, app)
        try:
            deadline = deadline_in(timeout_s)
            while not enough(sight := looker.look()):
                assert time.monotonic() < deadline, (sight, self.said(app))
                time.sleep(0.2)
            return sight
        finally:
            looker.close()

    def commits(self, app: str, *, other_than: str | None = None) -> Sight:
        """Look until a driver commits."""
        return self.sight(app, lambda s: s.batch_number > 0 and s.driver != other_than)

    def start(self, app: str) -> Run:
        """Trigger the stream."""
        dag = f"{app}_stream"
        until(lambda: dag in self.airflow.dags(), WITHIN_S)
        self.airflow.unpause(dag)
        return self.airflow.trigger(dag)

    def run(self, app: str) -> Run:
        """The newest run that is at work."""
        running = [r for r in self.airflow.active_runs(f"{app}_stream") if r.state == "running"]
        assert running, f"no run of {app} is at work"
        return running[0]

    def task(self, app: str) -> tuple[str | None, int]:
        """State and number of the try of the supervising task."""
        (task,) = self.airflow.tasks(self.run(app))
        return task.state, task.tries

    def said(self, app: str) -> list[str]:
        """What the supervising task said, in all of its tries, by Airflow's API."""
        lines = []
        run = self.run(app)
        base = f"/dags/{run.dag}/dagRuns/{run.id}/taskInstances/supervise"
        for number in range(1, self.task(app)[1] + 1):
            answer = self.airflow._call("GET", f"{base}/logs/{number}", params={"map_index": -1})
            lines += [str(one["event"]) for one in answer["content"] if isinstance(one, dict)]
        return lines

    def healthy(self) -> bool:
        status = self.stack.status()
        return all(status[name].health == "healthy" for name in SERVICES)

    def driver(self, app: str) -> Sight:
        """The driver that commits."""
        sight = self.commits(app)
        assert sight.facts is not None
        return sight

    def kill(self, app: str) -> Sight:
        """SIGKILL the driver; how it was before."""
        before = self.driver(app)
        assert before.facts is not None
        os.kill(before.facts.pid, signal.SIGKILL)
        return before


@contextmanager
def live_streams(home: Path, *apps: str, **flags: object) -> Iterator[Live]:
    """Airflow with a stream for each application, until the block ends; flags are settings."""
    folder = home / "scripted"
    folder.mkdir()
    (home / "dags").mkdir()
    job = str(SCRIPTED / "job.py")
    text = DAGS.format(apps=apps, job=job, folder=str(folder))
    (home / "dags" / "streams.py").write_text(text)
    for app in apps:
        (folder / app).write_text("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{os.environ['PATH']}:{SCRIPTED}")
        stack = Stack(settings_in(home, kafka_heap="384m", **flags))
        try:
            stack.up(only=["kafka", *SERVICES], timeout_s=WITHIN_S * SLOWNESS)
            with client_of(stack.settings) as airflow:
                connection = {
                    "connection_id": "scripted",
                    "conn_type": "spark",
                    "host": "local[1,2]",
                    "extra": json.dumps({"spark-binary": "spark3-submit"}),
                }
                airflow._call("POST", "/connections", json=connection)
                yield Live(stack, airflow, folder)
        finally:
            stack.down()
            for process in processes.marked("SCRIPTED", str(folder)):
                process.kill()
