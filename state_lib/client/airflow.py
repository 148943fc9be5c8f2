"""Airflow's REST API, as far as Holdfast needs it: unpause, trigger, and see how a run fares."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx
import stamina

from state_lib.errors import HoldfastError, InvalidRequest, NotFound, Unauthorized, Unavailable

ANSWER_S = 10.0
WAIT_S = (0.2, 2.0)
PAGE = 100
"""Entries that are asked for at once: as many as Airflow gives by default (``maximum_page_limit``).
"""
ACTIVE = ("queued", "running")
FINAL = ("success", "failed")


@dataclass(frozen=True)
class Run:
    """One run of a DAG: its state is ``queued``, ``running``, ``success`` or ``failed``."""

    dag: str
    id: str
    state: str


@dataclass(frozen=True)
class Task:
    """One task of a run: Airflow's word for its state, None before it is scheduled."""

    id: str
    state: str | None
    tries: int


class Airflow:
    """A session with one api-server. Restarts of it and a lost log-in are sat out.

    Every request is tried for `patience_s` while the server is away or cannot reach its database,
    and every request may be repeated: a run is triggered under an id of our own choosing.
    """

    def __init__(
        self,
        url: str,
        user: str,
        password: str | None,
        *,
        patience_s: float = 120.0,
        answer_s: float = ANSWER_S,
    ) -> None:
        """Remember where and as whom; nothing is asked yet.

        Args:
            url: Of the api-server, such as ``http://127.0.0.1:28080``.
            user: Whom to log in as.
            password: Its password; None for an Airflow that is open to everyone.
            patience_s: How long one call may wait for a server that is away; 0: it does not.
            answer_s: How long one request may take.
        """
        self.url = url
        self._user = user
        self._password = password
        self._patience_s = patience_s
        self._token: str | None = None
        self._http = httpx.Client(base_url=url, timeout=answer_s, trust_env=False)

    def __enter__(self) -> Self:
        """Use as ``with Airflow(...) as airflow``."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connections."""
        self._http.close()

    def dags(self) -> dict[str, bool]:
        """The DAGs that Airflow has parsed, and whether each is paused."""
        found = self._all("/dags", "dags")
        return {str(dag["dag_id"]): bool(dag["is_paused"]) for dag in found}

    def import_errors(self) -> dict[str, str]:
        """DAG files that cannot be imported, and how they fail."""
        found = self._all("/importErrors", "import_errors")
        return {str(one["filename"]): str(one["stack_trace"]) for one in found}

    def unpause(self, dag: str) -> None:
        """Let the scheduler start runs of a DAG.

        Raises:
            NotFound: Airflow has no such DAG (yet: it parses files after it starts).
        """
        self._call("PATCH", f"/dags/{_segment(dag)}", json={"is_paused": False})

    def trigger(self, dag: str, conf: Mapping[str, Any] | None = None) -> Run:
        """Start a run.

        Raises:
            NotFound: Airflow has no such DAG (yet).
            InvalidRequest: the DAG does not take these parameters.
        """
        run = f"holdfast-{uuid.uuid4().hex[:12]}"
        body = {"dag_run_id": run, "logical_date": None, "conf": dict(conf or {})}
        try:
            made = self._call("POST", f"/dags/{_segment(dag)}/dagRuns", json=body)
        except InvalidRequest as error:
            if error.details["status"] != httpx.codes.CONFLICT:
                raise
            return self.run(dag, run)  # the answer to an earlier try was lost
        return _run(made)

    def run(self, dag: str, run: str) -> Run:
        """A run as it is now."""
        return _run(self._call("GET", f"/dags/{_segment(dag)}/dagRuns/{_segment(run)}"))

    def active_runs(self, dag: str) -> list[Run]:
        """Runs that wait or run, the newest first."""
        params = {"state": list(ACTIVE), "order_by": "-run_after"}
        found = self._call("GET", f"/dags/{_segment(dag)}/dagRuns", params=params)
        return [_run(one) for one in found["dag_runs"]]

    def tasks(self, run: Run) -> list[Task]:
        """The tasks of a run."""
        path = f"/dags/{_segment(run.dag)}/dagRuns/{_segment(run.id)}/taskInstances"
        found = self._call("GET", path)["task_instances"]
        return [Task(one["task_id"], one["state"], one["try_number"]) for one in found]

    def result(self, run: Run, task: str, key: str = "return_value") -> Any:
        """What a task of a run has returned, or has pushed under another key.

        Raises:
            NotFound: nothing.
        """
        names = (run.dag, "dagRuns", run.id, "taskInstances", task, "xcomEntries", key)
        path = "/dags/" + "/".join(map(_segment, names))
        return self._call("GET", path, params={"stringify": False})["value"]

    def _all(self, path: str, what: str) -> list[dict[str, Any]]:
        """Every page of a list."""
        found: list[dict[str, Any]] = []
        while True:
            page = self._call("GET", path, params={"limit": PAGE, "offset": len(found)})
            found += page[what]
            if not page[what] or len(found) >= page["total_entries"]:
                return found

    def _call(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        for attempt in stamina.retry_context(
            on=Unavailable,
            attempts=None if self._patience_s else 1,
            timeout=self._patience_s or None,
            wait_initial=WAIT_S[0],
            wait_max=WAIT_S[1],
        ):
            with attempt:
                try:
                    return self._once(method, path, request)
                except Unauthorized as error:
                    if self._token is None or error.details["status"] != httpx.codes.UNAUTHORIZED:
                        raise
                    self._token = None  # it has expired, or was signed with a former secret
                    return self._once(method, path, request)
        raise AssertionError  # retry_context returns or raises

    def _once(self, method: str, path: str, request: Mapping[str, Any]) -> dict[str, Any]:
        if self._token is None:
            self._token = self._log_in()
        headers = {"Authorization": f"Bearer {self._token}"}
        return self._ask(method, f"/api/v2{path}", headers=headers, **request)

    def _log_in(self) -> str:
        if self._password is None:
            answer = self._ask("GET", "/auth/token")
        else:
            credentials = {"username": self._user, "password": self._password}
            try:
                answer = self._ask("POST", "/auth/token", json=credentials)
            except Unauthorized as error:
                message = f"Airflow on {self.url} does not accept the password of {self._user!r}."
                raise Unauthorized(message, **error.details, user=self._user) from error
        return str(answer["access_token"])

    def _ask(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        try:
            answer = self._http.request(method, path, **request)
        except httpx.TransportError as error:
            message = f"Airflow on {self.url} cannot be reached ({error}): see 'holdfast status'."
            raise Unavailable(message, url=self.url) from error
        if answer.is_success:
            body: dict[str, Any] = answer.json()
            return body
        raise _failure(answer, self.url)


def _failure(answer: httpx.Response, url: str) -> HoldfastError:
    what = f"{answer.request.method} {answer.request.url.path}"
    details = {"url": url, "status": answer.status_code}
    said = f"Airflow on {url} answered {answer.status_code} to {what}: {answer.text[:500]}"
    kinds: dict[int, type[HoldfastError]] = {
        httpx.codes.UNAUTHORIZED: Unauthorized,
        httpx.codes.FORBIDDEN: Unauthorized,
        httpx.codes.NOT_FOUND: NotFound,
    }
    if answer.is_server_error:
        return Unavailable(said, **details)
    return kinds.get(answer.status_code, InvalidRequest)(said, **details)


def _run(body: Mapping[str, Any]) -> Run:
    return Run(str(body["dag_id"]), str(body["dag_run_id"]), str(body["state"]))


def _segment(name: str) -> str:
    return quote(name, safe="")
