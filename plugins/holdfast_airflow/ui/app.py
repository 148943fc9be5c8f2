"""Pages about the application of a task: its driver's log and Spark's page, its capacity report.

A plugin's application is open to anyone unless it asks Airflow's security. Every route here does:
whoever may read the logs of a DAG may read the log of the driver that the DAG supervises, and no
other. So a path names the DAG and the task, and the application is looked up in the DAG.
"""

from __future__ import annotations

import html
from pathlib import Path
from typing import Annotated, Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import requires_access_dag
from airflow.models.serialized_dag import SerializedDagModel
from fastapi import Depends, FastAPI, HTTPException, Query, status
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from holdfast_airflow.settings import settings_of
from state_lib.errors import HoldfastError
from state_lib.names import check_name
from state_lib.stack.logs import last_lines
from state_lib.stack.paths import Paths

MAX_LINES = 20_000
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{app}: driver's log</title>
<meta http-equiv="refresh" content="5">
<style>
:root {{ color-scheme: light dark; font: 14px/1.45 system-ui, sans-serif }}
body {{ margin: 1rem }} pre {{ white-space: pre-wrap; overflow-wrap: anywhere; font-size: 12px }}
</style>
<h1>{app}</h1>
<p>The last {lines} lines of <code>{path}</code>, read again every 5 s.
<a href="?lines={more}">More</a> · <a href="?raw=true&amp;lines={limit}">As text</a></p>
<pre>{text}</pre>
<script>scrollTo(0, document.body.scrollHeight)</script>
</html>"""
# A report is read from storage: nothing in it may run or fetch anything here.
ONLY_ITSELF = "default-src 'none'; style-src 'unsafe-inline'; sandbox"

app = FastAPI(title="Holdfast", docs_url=None, redoc_url=None, openapi_url=None)
may_read_logs = Depends(requires_access_dag("GET", DagAccessEntity.TASK_LOGS))
Lines = Annotated[int, Query(ge=1, le=MAX_LINES)]


@app.get("/streams/{dag_id}/{task_id}/log", dependencies=[may_read_logs])
def log(
    dag_id: str, task_id: str, session: SessionDep, lines: Lines = 500, *, raw: bool = False
) -> Response:
    """The end of the driver's log, as a page or as text."""
    name = supervised(dag_id, task_id, session)
    path = log_path(name)
    text = "\n".join(last_lines(path, lines))
    if not path.is_file():
        raise HTTPException(
            status.HTTP_404_NOT_FOUND,
            f"{path} does not exist on this machine: the driver of {name!r} has not started yet, "
            "or its worker is another machine. The task's log names it",
        )
    if raw:
        return PlainTextResponse(text)
    values = {"app": name, "path": path, "text": text}
    escaped = {key: html.escape(str(value)) for key, value in values.items()}
    more = min(lines * 4, MAX_LINES)
    return HTMLResponse(PAGE.format(**escaped, lines=lines, more=more, limit=MAX_LINES))


@app.get("/streams/{dag_id}/{task_id}/spark", dependencies=[may_read_logs])
def spark(dag_id: str, task_id: str, session: SessionDep) -> Response:
    """To Spark's page of the driver that runs now."""
    from state_lib.drivers.look import Looker  # noqa: PLC0415 - Kafka's client, for this page only

    name = supervised(dag_id, task_id, session)
    looker = Looker(_settings(), name)
    try:
        sight = looker.look()
    finally:
        looker.close()
    if sight.facts is None or sight.facts.ui is None:
        why = sight.away or "its driver has not come so far yet, or does not run"
        raise HTTPException(
            status.HTTP_404_NOT_FOUND, f"no Spark page of {name!r} is known: {why}. Try again"
        )
    return RedirectResponse(sight.facts.ui)


@app.get("/streams/{dag_id}/{task_id}/capacity", dependencies=[may_read_logs])
def capacity(dag_id: str, task_id: str, session: SessionDep) -> Response:
    """The newest capacity report."""
    from state_lib.capacity.measure import newest_page  # noqa: PLC0415 - Kafka's client

    name = supervised(dag_id, task_id, session)
    try:
        settings = _settings()
        found = newest_page(settings, name)
    except HoldfastError as error:
        raise HTTPException(status.HTTP_404_NOT_FOUND, error.message) from error
    if found is None:
        raise HTTPException(
            status.HTTP_404_NOT_FOUND,
            f"there is no capacity report of {name!r} in {settings.reports_url}: run the task. "
            "Workers and the api-server must see the same HOLDFAST_REPORTS_URL",
        )
    return HTMLResponse(found, headers={"Content-Security-Policy": ONLY_ITSELF})


def supervised(dag_id: str, task_id: str, session: Any) -> str:
    """The application that a task supervises, by the DAG as Airflow keeps it.

    Raises:
        HTTPException: 404, there is no such task, or it supervises no stream.
    """
    found = SerializedDagModel.get(dag_id, session=session)
    task = found.dag.task_dict.get(task_id) if found is not None else None
    name = getattr(task, "app", None)
    if not isinstance(name, str):
        raise HTTPException(
            status.HTTP_404_NOT_FOUND, f"task {task_id!r} of DAG {dag_id!r} supervises no stream"
        )
    return name


def log_path(name: str) -> Path:
    """Where drivers of this machine write their log: where `holdfast logs` looks as well."""
    try:
        return Paths(_settings().home).log(check_name("application", name))
    except HoldfastError as error:
        raise HTTPException(status.HTTP_404_NOT_FOUND, error.message) from error


def _settings() -> Any:
    return settings_of({})
