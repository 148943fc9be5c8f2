"""A person who answers what DAGs ask, by Airflow's own API."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from airflow.api_fastapi.app import create_app, get_auth_manager, purge_cached_app
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.models import DagRun
from airflow.models.hitl import HITLDetail
from airflow.models.taskinstance import TaskInstance, clear_task_instances
from airflow.utils.session import create_session
from fastapi.testclient import TestClient
from sqlalchemy import select

from tests.support.waiting import until


@contextmanager
def airflows_api() -> Iterator[TestClient]:
    """Of the api-server, on the database of this process."""
    purge_cached_app()
    with TestClient(create_app("core")) as made:
        yield made
    purge_cached_app()


class Person:
    """Answers, in a thread of its own, what the runs of a DAG ask."""

    def __init__(self, web: TestClient, dag_id: str) -> None:
        self._web, self._dag_id = web, dag_id
        self.bodies: list[str] = []
        self.limits: list[datetime | None] = []
        """Until when the questions were open."""
        self.refused: list[int] = []
        self._threads: list[threading.Thread] = []

    def will(self, choice: str, task: str = "approve", first: Callable[[], Any] = int) -> None:
        """Answer the next question of a task, after doing something first."""

        def answer() -> None:
            ti, body = until(lambda: self._waited_for(task), 120, "asked")
            self.bodies.append(body)
            self.limits.append(ti.trigger_timeout)
            first()
            self.refused.append(self._say(ti, choice, "viewer"))
            assert self._say(ti, choice, "admin") == 200

        self._threads.append(threading.Thread(target=answer))
        self._threads[-1].start()

    def will_clear(self, *tasks: str, first: Callable[[], Any]) -> None:
        """Clear tasks of the run once it asks, after doing something first."""

        def clear() -> None:
            ti, body = until(lambda: self._waited_for("approve"), 120, "asked")
            self.bodies.append(body)
            first()
            with create_session() as session:
                wanted = select(TaskInstance).where(
                    TaskInstance.dag_id == ti.dag_id,
                    TaskInstance.run_id == ti.run_id,
                    TaskInstance.task_id.in_(tasks),
                )
                clear_task_instances(list(session.scalars(wanted)), session)

        self._threads.append(threading.Thread(target=clear))
        self._threads[-1].start()

    def done(self) -> None:
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def _asked(self, task: str) -> tuple[TaskInstance, str] | None:
        with create_session() as session:
            wanted = select(TaskInstance, HITLDetail.body).join(
                HITLDetail, HITLDetail.ti_id == TaskInstance.id
            )
            wanted = wanted.where(
                TaskInstance.task_id == task,
                TaskInstance.dag_id == self._dag_id,
                TaskInstance.state == "awaiting_input",
                HITLDetail.responded_at.is_(None),
            )
            found = session.execute(wanted).first()
            return None if found is None else (found[0], str(found[1]))

    def _waited_for(self, task: str) -> tuple[TaskInstance, str] | None:
        """Also `dag.test` knows by now: a look of its before would put the task back to waiting."""
        if (found := self._asked(task)) is None:
            return None
        with create_session() as session:
            asked = select(HITLDetail.created_at).where(HITLDetail.ti_id == found[0].id)
            looked = select(DagRun.last_scheduling_decision).where(
                DagRun.dag_id == found[0].dag_id, DagRun.run_id == found[0].run_id
            )
            at, looked_at = session.scalar(asked), session.scalar(looked)
            return found if at and looked_at and looked_at > at else None

    def _say(self, ti: TaskInstance, choice: str, role: str) -> int:
        user = SimpleAuthManagerUser(username=role, role=role)
        headers = {"Authorization": f"Bearer {get_auth_manager().generate_jwt(user)}"}
        path = f"/api/v2/dags/{ti.dag_id}/dagRuns/{ti.run_id}/taskInstances/{ti.task_id}/-1"
        body = {"chosen_options": [choice], "params_input": {}}
        return self._web.patch(f"{path}/hitlDetails", json=body, headers=headers).status_code
