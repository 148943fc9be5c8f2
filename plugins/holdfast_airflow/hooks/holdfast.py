"""The connection type ``holdfast``: brokers, hosts and token, in Admin, Connections."""

from __future__ import annotations

import logging
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException, ErrorType

from holdfast_airflow.settings import settings_of
from state_lib.errors import ConfigurationError, HoldfastError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from state_lib.checks import Report
    from state_lib.config import Settings
    from state_lib.specs import Topology

log = logging.getLogger(__name__)
ANSWER_TIMEOUT_S = 5.0


class HoldfastHook(BaseHook):
    """Holdfast's settings by a connection, and what tasks ask with them.

    The connection's host are Kafka's bootstrap servers, its password the hosts' token; its extra
    are other settings by name, ``hosts`` and ``snapshots_url`` above all. What it does not say
    comes from the worker's environment, and so does everything without a default connection. A
    password wins over the worker's ``HOLDFAST_TOKEN_FILE``.

    Args:
        conn_id: of the connection; empty: none. One that is not the default one must be there.
        env: ``HOLDFAST_*`` variables that win over it.
    """

    conn_name_attr = "conn_id"
    default_conn_name = "holdfast_default"
    conn_type = "holdfast"
    hook_name = "Holdfast"

    def __init__(
        self, conn_id: str = default_conn_name, env: Mapping[str, str] | None = None
    ) -> None:
        super().__init__()
        self.conn_id = conn_id
        self._env = env or {}

    @cached_property
    def settings(self) -> Settings:
        """Of the connection.

        Raises:
            ConfigurationError: naming every wrong setting and the value seen; or there is no such
                connection.
            Unavailable: Airflow does not tell it now.
        """
        from state_lib.config import PREFIX

        said = {PREFIX + name.upper(): value for name, value in self._said()}
        if PREFIX + "TOKEN" in self._env:
            said.pop(PREFIX + "TOKEN_FILE", None)  # which would win over a token
        return settings_of({**said, **self._env})

    def check(self, app: str, *, read_logs: bool = True) -> Report:
        """Gather an application's facts, and judge them.

        Raises:
            NotFound: no such application.
            Unavailable: Kafka is away.
        """
        from state_lib.checks import judge
        from state_lib.gathering.application import gather
        from state_lib.kafka import Kafka

        return judge(gather(self.settings, Kafka.of(self.settings), app, read_logs=read_logs))

    def declared(self, app: str) -> Topology:
        """An application, as its last driver declared it.

        Raises:
            NotFound: no such application.
            LogLost: its topology topic is gone, and its tasks are not.
            Unavailable: Kafka is away.
        """
        from state_lib.gathering.application import declared
        from state_lib.kafka import Kafka

        return declared(Kafka.of(self.settings), app)

    def test_connection(self) -> tuple[bool, str]:
        """The test button: are Kafka and every host there, and do they let us in?"""
        from state_lib.changelog.claims import candidates
        from state_lib.gathering.hosts import hosts_seen
        from state_lib.kafka import Kafka

        try:
            settings = self.settings
            apps = candidates(Kafka.of(settings))
            addresses, token = settings.host_addresses, settings.read_token()
            seen = hosts_seen(addresses, token, "", ANSWER_TIMEOUT_S)
        except HoldfastError as error:
            return False, error.message
        if away := [f"{h.id}: {h.away}" for h in seen if h.away is not None]:
            return False, f"Kafka answers; {'; '.join(away)}"
        known = ", ".join(apps) or "none"
        return True, f"Kafka and {len(seen)} hosts answer. Applications: {known}"

    def _said(self) -> list[tuple[str, str]]:
        """Settings that the connection has a value for."""
        found = _told(self.conn_id)
        if found is None:
            _check_may_miss(self.conn_id)
            self.log.info("No connection %s: the worker's own settings are used", self.conn_id)
            return []
        servers = found.host
        if servers and found.port:
            servers = f"{servers}:{found.port}"
        said = {"bootstrap_servers": servers, "token": found.password, **found.extra_dejson}
        return [(name, str(value)) for name, value in said.items() if value not in (None, "")]


def existing(conn_id: str) -> str:
    """The connection's id, for a trigger; empty without one, so that it uses its own settings.

    Raises:
        ConfigurationError: there is no such connection, and it is not the default one.
        Unavailable: Airflow does not tell it now.
    """
    if _told(conn_id) is not None:
        return conn_id
    _check_may_miss(conn_id)
    return ""


def settings_while_there(conn_id: str, env: Mapping[str, str]) -> Settings:
    """Settings of a trigger by the connection that its task has found; empty: it found none.

    Raises:
        Unavailable: it is not there now, or Airflow does not tell. This process's own settings may
            be of other brokers and hosts: they do not take its place.
        ConfigurationError: naming every wrong setting and the value seen.
    """
    if conn_id and _told(conn_id) is None:
        raise Unavailable(f"there is no connection {conn_id!r} now", conn_id=conn_id)
    return HoldfastHook(conn_id, env).settings


def _told(conn_id: str) -> Any:
    """The connection; None if there is none."""
    if not conn_id:
        return None
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        if _is_absent(conn_id):
            return None
        raise Unavailable(
            f"Airflow does not tell its connection {conn_id!r} now: look at its api-server",
            conn_id=conn_id,
        ) from error


def _is_absent(conn_id: str) -> bool:
    """Whether Airflow says that there is none: to its hooks any failure of its own is the same."""
    # Only workers and triggerers have these, and nobody who parses a DAG.
    from airflow.sdk.execution_time import task_runner  # noqa: PLC0415
    from airflow.sdk.execution_time.comms import ErrorResponse, GetConnection  # noqa: PLC0415

    comms: Any = getattr(task_runner, "SUPERVISOR_COMMS", None)
    if comms is None:  # no worker and no triggerer: this process has looked into the database
        return True
    try:
        said = comms.send(GetConnection(conn_id=conn_id))
    except Exception:
        log.warning("Airflow did not answer about connection %s", conn_id, exc_info=True)
        return False
    return isinstance(said, ErrorResponse) and said.error == ErrorType.CONNECTION_NOT_FOUND


def _check_may_miss(conn_id: str) -> None:
    """Raise ConfigurationError unless the worker's own settings count where there is none."""
    if conn_id not in ("", HoldfastHook.default_conn_name):
        raise ConfigurationError(
            f"there is no connection {conn_id!r}: add one of type Holdfast under Admin, "
            "Connections, or correct `conn_id`",
            conn_id=conn_id,
        )
