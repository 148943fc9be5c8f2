"""The demo's part that Airflow does: load and stream are triggered, and followed to the end.

Airflow may go away at any moment: what it has started goes on without it. How far load and stream
are is asked of Kafka and of the hosts, so a bar stands still only if the work does.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING

from state_lib.client.airflow import FINAL, Airflow, Run
from state_lib.client.following import Following
from state_lib.drivers.members import living_drivers
from state_lib.errors import ConfigurationError, HoldfastError, Unavailable
from state_lib.kafka import Kafka, describe, ends
from state_lib.stack.airflow import AirflowHome, login

if TYPE_CHECKING:
    from rich.console import Console

    from state_lib.config import Settings

PARSED_WITHIN_S = 120.0
TIMEOUT_S = 600.0
POLL_S, ASK_AIRFLOW_S, AIRFLOW_ANSWERS_S = 0.5, 2.0, 3.0


def airflow_of(settings: Settings, *, patience_s: float, answer_s: float = 10.0) -> Airflow:
    """Airflow of the local stack, as its admin."""
    door = login(settings)
    password = AirflowHome(settings.airflow_home).password() if door.password_file else None
    return Airflow(door.url, door.user, password, patience_s=patience_s, answer_s=answer_s)


def ready(airflow: Airflow, dags: tuple[str, ...], settings: Settings) -> None:
    """Wait until Airflow has parsed these DAGs, and let them run.

    Raises:
        ConfigurationError: it cannot import the file of one, which bears its name; or there is no
            such DAG.
    """
    deadline = time.monotonic() + PARSED_WITHIN_S
    while missing := sorted(set(dags) - airflow.dags().keys()):
        errors = airflow.import_errors()
        hopeless = set(missing) & {PurePath(file).stem for file in errors}
        if hopeless or time.monotonic() > deadline:
            broken = "".join(f"\n{file}: {why}" for file, why in errors.items())
            message = (
                f"Airflow has no DAG {' and '.join(missing)} from {settings.dags_dir}."
                f"{broken}\nCorrect the files, or set HOLDFAST_DAGS_DIR."
            )
            raise ConfigurationError(message, missing=missing)
        time.sleep(POLL_S)
    for dag in dags:
        airflow.unpause(dag)


def operate(airflow: Airflow, dags: tuple[str, ...]) -> None:
    """Let those of these DAGs run that Airflow has."""
    known = airflow.dags()
    for dag in dags:
        if dag in known:
            airflow.unpause(dag)


@dataclass
class Pipeline:
    """An application's two runs: of ``<app>_load`` and, once there are records, ``<app>_stream``.

    Attributes:
        settings: Of the stack.
        airflow: Asked now and then; it need not be patient.
        app: The application's id, and the name of its source topic.
        load: The run that loads.
        stream: The run that streams, None before it is started. One that ran already may end now
            for a stop of before, such as ``make down``: another one is triggered then.
    """

    settings: Settings
    airflow: Airflow
    app: str
    load: Run
    stream: Run | None = None
    _found: bool = field(default=False, init=False)
    _kafka: Kafka = field(init=False)
    _asked_at: float = field(default=float("-inf"), init=False)
    _away: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """Prepare to count."""
        self._kafka = Kafka.of(self.settings)

    def published(self) -> int:
        """Records in the source topic; 0 while there is none, or while Kafka is away."""
        try:
            found = describe(self._kafka.admin(), [self.app])
            every = [(t, p) for t, facts in found.items() for p in range(facts.partitions)]
            return sum(ends(self._kafka.admin(), every).values()) if every else 0
        except HoldfastError:
            return 0

    def streams(self) -> bool:
        """Whether a driver runs: what it has to do may be done already, by one of before."""
        try:
            return self.stream is not None and bool(living_drivers(self._kafka, self.app))
        except HoldfastError:
            return False

    def news(self, *, records: int) -> list[str]:
        """What Airflow says that is new, asked every `ASK_AIRFLOW_S`; starts the stream in time.

        Raises:
            Unavailable: a run has failed or ended.
        """
        if time.monotonic() - self._asked_at < ASK_AIRFLOW_S:
            return []
        self._asked_at = time.monotonic()
        try:
            said = self._ask(records)
        except Unavailable:
            said = [] if self._away else ["Airflow does not answer: load and stream go on"]
            self._away = True
            return said
        said = (["Airflow is back"] if self._away else []) + said
        self._away = False
        self._check()
        return said

    def _ask(self, records: int) -> list[str]:
        said = []
        if self.load.state not in FINAL:
            before, self.load = self.load, self.airflow.run(self.load.dag, self.load.id)
            said += _changed(before, self.load)
        if self.stream is not None:
            before, self.stream = self.stream, self.airflow.run(self.stream.dag, self.stream.id)
            said += _changed(before, self.stream)
            if self._found and self.stream.state == "success":
                self.stream, self._found = None, False
        if self.stream is None and records:
            said.append(self._start(f"{self.app}_stream"))
        return said

    def _start(self, dag: str) -> str:
        if active := self.airflow.active_runs(dag):
            self.stream, self._found = active[0], True
            return f"{dag}: runs already ({self.stream.id})"
        self.stream = self.airflow.trigger(dag)
        return f"{dag}: {self.stream.state}"

    def _check(self) -> None:
        bad = self.load if self.load.state == "failed" else None
        if self.stream and self.stream.state in FINAL:
            bad = self.stream
        if bad:
            message = (
                f"the run {bad.id} of {bad.dag} has ended: {bad.state}. Its log is on "
                f"{self.airflow.url}/dags/{bad.dag}/runs/{bad.id}, that of the driver in "
                f"'holdfast logs {self.app}'. Correct the cause, then run 'make demo' again."
            )
            raise Unavailable(message, dag=bad.dag, run=bad.id, state=bad.state)


def follow(console: Console, pipeline: Pipeline, *, expected: int) -> None:
    """Show how far load and stream are, until every task stands at the end of the topic.

    Args:
        console: Where to.
        pipeline: With its load just triggered.
        expected: Records that will be there when the load is done, at least.

    Raises:
        Unavailable: a run failed, or it takes longer than `TIMEOUT_S`.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    following = Following(pipeline.settings, pipeline.app)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    began = time.monotonic()
    with Progress(*columns, TextColumn("{task.fields[note]}"), console=console) as progress:
        load = progress.add_task("published", total=expected, note="")
        stream = progress.add_task("in state", total=expected, note="")
        while time.monotonic() - began < TIMEOUT_S:
            records = pipeline.published()
            progress.update(load, completed=records, total=max(records, expected))
            place = following.look()
            if place is None or not place.done:
                note = "Spark is starting (10 to 30 s)" if pipeline.stream else ""
                progress.update(stream, note=note)
            else:
                total = max(place.total, expected)
                progress.update(stream, completed=place.done, total=total, note="")
            for line in pipeline.news(records=records):
                progress.console.print(line, style="dim", highlight=False)
            loaded = pipeline.load.state == "success" and pipeline.streams()
            if loaded and place and place.at_the_end and place.total >= records:
                return
            time.sleep(POLL_S)
    raise Unavailable(
        f"the stream has not caught up in {TIMEOUT_S:.0f} s; it goes on. Look at `holdfast logs "
        f"{pipeline.app}` and at {pipeline.airflow.url}, then run `make demo` again",
        app=pipeline.app,
    )


def _changed(before: Run, now: Run) -> list[str]:
    return [] if before.state == now.state else [f"{now.dag}: {now.state}"]
