"""The connection ``holdfast``: there, not there, and Airflow that does not say."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse
from airflow.sdk.execution_time.supervisor import InProcessSupervisorComms

from holdfast_airflow.hooks.holdfast import HoldfastHook, existing, settings_while_there
from holdfast_airflow.operators.prune import PruneSnapshotsOperator
from holdfast_airflow.triggers.snapshots import SnapshotsTrigger
from state_lib.errors import ConfigurationError, Unavailable
from state_lib.stack.ports import free_port
from tests.dags.conftest import Connect
from tests.support.waiting import SLOWNESS

DEFAULT = HoldfastHook.default_conn_name


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch, api: None) -> None:
    """Settings of this worker, and no connection."""
    del api
    monkeypatch.setenv("HOLDFAST_BOOTSTRAP_SERVERS", "the-worker-s:9092")


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's API has an error whatever it is asked."""
    refused = ErrorResponse(error=ErrorType.API_SERVER_ERROR)
    monkeypatch.setattr(InProcessSupervisorComms, "send", lambda *_: refused)


def test_without_a_default_connection_the_workers_own_settings_count() -> None:
    for conn_id in (DEFAULT, ""):
        assert HoldfastHook(conn_id).settings.bootstrap_servers == "the-worker-s:9092"
        assert existing(conn_id) == ""


def test_a_connection_that_a_dag_names_must_be_there(connect: Connect) -> None:
    with pytest.raises(ConfigurationError, match="there is no connection 'named'"):
        _ = HoldfastHook("named").settings
    with pytest.raises(ConfigurationError, match="Admin, Connections"):
        existing("named")
    with pytest.raises(AirflowFailException, match="there is no connection 'named'"):
        PruneSnapshotsOperator(task_id="p", app="a", keep=1, conn_id="named").execute({})
    connect("the-named:9092", "named", conn_type="holdfast")
    assert HoldfastHook("named").settings.bootstrap_servers == "the-named:9092"
    assert existing("named") == "named"


def test_one_that_was_there_is_waited_for() -> None:
    for conn_id in (DEFAULT, "named"):
        with pytest.raises(Unavailable, match=r"there is no connection .* now"):
            settings_while_there(conn_id, {})
    assert settings_while_there("", {}).bootstrap_servers == "the-worker-s:9092"


@pytest.mark.usefixtures("silent")
def test_airflow_that_does_not_answer_is_no_missing_connection() -> None:
    """Else what is of the worker's own cluster would be pruned, repaired, watched."""
    for conn_id in (DEFAULT, "named"):
        with pytest.raises(Unavailable, match="Airflow does not tell"):
            _ = HoldfastHook(conn_id).settings
        with pytest.raises(Unavailable, match="Airflow does not tell"):
            existing(conn_id)
    with pytest.raises(AirflowException, match="Airflow does not tell") as error:
        PruneSnapshotsOperator(task_id="p", app="a", keep=1).execute({})
    assert not isinstance(error.value, AirflowFailException), "a retry helps"


@pytest.fixture
def hosts() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two state hosts that do not answer: of the triggerer's own settings, of the connection."""
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as own,
        closing(socket.create_server(("127.0.0.1", 0))) as named,
    ):
        own.setblocking(False)
        named.settimeout(30 * SLOWNESS)
        yield own, named


def test_a_trigger_asks_nobody_else_while_its_connection_cannot_be_read(
    hosts: tuple[socket.socket, socket.socket], connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of(host: socket.socket) -> str:
        return f"host-1=127.0.0.1:{host.getsockname()[1]}/{free_port()}"

    own, named = hosts
    monkeypatch.setenv("HOLDFAST_HOSTS", of(own))
    monkeypatch.setattr("holdfast_airflow.triggers.told.AGAIN_S", 0.1)
    trigger = SnapshotsTrigger("app", [0], "request", DEFAULT)

    async def fires() -> Any:
        async for event in trigger.run():
            return event.payload
        return None

    async def run() -> None:
        waiting = asyncio.create_task(fires())
        done, _ = await asyncio.wait({waiting}, timeout=2)
        assert not done
        with pytest.raises(BlockingIOError):
            own.accept()
        connect("", DEFAULT, conn_type="holdfast", extra={"hosts": of(named)})
        asked, _ = await asyncio.to_thread(named.accept)
        asked.close()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(run())
