"""The connection type ``holdfast``: brokers, hosts and token, in Admin, Connections."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from holdfast_airflow.settings import settings_of
from state_lib.errors import HoldfastError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from state_lib.checks import Report
    from state_lib.config import Settings
    from state_lib.specs import Topology

ANSWER_TIMEOUT_S = 5.0


class HoldfastHook(BaseHook):
    """Holdfast's settings by a connection, and what tasks ask with them.

    The connection's host are Kafka's bootstrap servers, its password the hosts' token; its extra
    are other settings by name, ``hosts`` and ``snapshots_url`` above all. What it does not say
    comes from the worker's environment, and so does everything where there is no such connection.
    A password wins over the worker's ``HOLDFAST_TOKEN_FILE``.

    Args:
        conn_id: of the connection.
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
            ConfigurationError: naming every wrong setting and the value seen.
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
        try:
            found: Any = self.get_connection(self.conn_id)
        except AirflowNotFoundException:
            self.log.info("No connection %s: the worker's own settings are used", self.conn_id)
            return []
        servers = found.host
        if servers and found.port:
            servers = f"{servers}:{found.port}"
        said = {"bootstrap_servers": servers, "token": found.password, **found.extra_dejson}
        return [(name, str(value)) for name, value in said.items() if value not in (None, "")]


def existing(conn_id: str) -> str:
    """The connection's id; empty if there is no such connection, or Airflow does not tell it."""
    try:
        BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        return ""
    return conn_id


def settings_while_there(conn_id: str, env: Mapping[str, str]) -> Settings:
    """Settings of a trigger by the connection that its task has found; empty: it found none.

    Raises:
        Unavailable: Airflow does not tell it now. This process's own settings may be of other
            brokers and hosts: they do not take its place.
        ConfigurationError: naming every wrong setting and the value seen.
    """
    if conn_id and not existing(conn_id):
        raise Unavailable(f"there is no connection {conn_id!r} now", conn_id=conn_id)
    return HoldfastHook(conn_id, env).settings
