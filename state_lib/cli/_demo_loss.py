"""The demo's lost disk: the directory of a task is deleted, and Airflow brings its stores back."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from state_lib.client.airflow import FINAL, Airflow, Run
from state_lib.errors import Unavailable
from state_lib.protocol.placement import owner_of

if TYPE_CHECKING:
    from rich.console import Console

    from state_lib.stack import Stack

WAITS_WITHIN_S, WITHIN_S, POLL_S = 60.0, 180.0, 0.5
STEPS = {
    "watch": "sensed: the store-lost sensor has fired",
    "plan": "planned: the cheapest valid source",
    "approve": "nothing is discarded, so nobody is asked",
    "restore": "restored by its host",
    "report": "verified: its digests are those of its changelogs, and the stream goes on",
}
"""Tasks of the DAG, and what their success means."""


def show_loss(
    console: Console, stack: Stack, airflow: Airflow, app: str, *, wanted: bool = True
) -> None:
    """Lose task 0 of an application, and follow the run of its restore DAG to the end.

    Says why, and does nothing, if it is not wanted or Airflow would not bring it back.

    Raises:
        Unavailable: the DAG does not wait for lost stores, its run failed, or it takes too long.
    """
    if why := _left_out(stack, airflow, app, wanted=wanted):
        console.print(f"left out: {why}", highlight=False)
        return
    with console.status(f"until {app}_restore waits for lost stores"):
        run = _waiting(airflow, f"{app}_restore")
    host = owner_of(app, 0, stack.settings.host_addresses).id
    folder = stack.settings.home / "state" / host / app / "0"
    pid = stack.status()[host].pid
    if pid is None:
        raise Unavailable(f"{host} does not run: see 'holdfast logs {host}'", host=host)
    console.print(f"kill -9 {pid} ({host}); rm -r {folder}", highlight=False, soft_wrap=True)
    lose(folder, pid)
    report = follow_restore(console, airflow, run)
    for one in report["tasks"]:
        console.print(
            f"{one['task']}: {one['records']:,} records from {one['source']}, "
            f"{report['seconds']} s from sensed to verified"
        )


def lose(folder: Path, pid: int) -> None:
    """Remove a task's directory and SIGKILL its host.

    It is stopped first, and the directory renamed: what is being written just now goes with it.
    """
    gone = folder.with_name(f"{folder.name}.lost")
    os.kill(pid, signal.SIGSTOP)
    try:
        folder.rename(gone)
    finally:
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(gone, ignore_errors=True)


def follow_restore(console: Console, airflow: Airflow, run: Run) -> dict[str, Any]:
    """Tell of each task that succeeds; returns the run's report.

    Raises:
        Unavailable: the run failed, or takes longer than `WITHIN_S`.
    """
    began, told = time.monotonic(), set[str]()
    with console.status("until a store is missed") as spinner:
        while run.state not in FINAL and time.monotonic() - began < WITHIN_S:
            time.sleep(POLL_S)
            run = airflow.run(run.dag, run.id)
            after = time.monotonic() - began
            for task in airflow.tasks(run):
                if task.state == "success" and task.id not in told:
                    told.add(task.id)
                    what = STEPS.get(task.id, "done")
                    console.print(f"{after:5.1f} s  {task.id:8} {what}", highlight=False)
                elif task.state in ("queued", "running", "deferred"):
                    spinner.update(f"{run.dag}: {task.id} ({task.state})")
    if run.state != "success":
        raise Unavailable(
            f"the run {run.id} of {run.dag} is {run.state} after {time.monotonic() - began:.0f} s: "
            f"see {airflow.url}/dags/{run.dag}/runs/{run.id}. Nothing is lost: it goes on, and so "
            f"does 'holdfast restore run {run.dag.removesuffix('_restore')}'",
            dag=run.dag,
            run=run.id,
            state=run.state,
        )
    found: dict[str, Any] = airflow.result(run, "report")
    return found


def _waiting(airflow: Airflow, dag: str) -> Run:
    """The run whose sensor waits in the triggerer."""
    deadline = time.monotonic() + WAITS_WITHIN_S
    while time.monotonic() < deadline:
        for run in airflow.active_runs(dag):
            if {task.id: task.state for task in airflow.tasks(run)}.get("watch") == "deferred":
                return run
        time.sleep(POLL_S)
    raise Unavailable(
        f"no run of {dag} waits for lost stores: is it paused? Unpause it on {airflow.url}/dags/"
        f"{dag}, then run 'make demo' again, or with --no-loss",
        dag=dag,
    )


def _left_out(stack: Stack, airflow: Airflow, app: str, *, wanted: bool) -> str:
    """Why nothing is lost; empty: nothing speaks against it."""
    mode = stack.settings.restore_mode
    if not wanted:
        return "--no-loss"
    if mode != "orchestrated":
        return f"HOLDFAST_RESTORE_MODE is {mode}: hosts restore by themselves"
    if f"{app}_restore" not in airflow.dags():
        return f"there is no DAG {app}_restore in {stack.settings.dags_dir}"
    return ""
