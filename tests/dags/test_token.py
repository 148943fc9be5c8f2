"""A worker whose token the hosts do not accept learns it before a driver is started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast_airflow.hooks.hosts import check_token
from state_lib.changelog.log import KafkaLog
from state_lib.config import Settings
from state_lib.errors import ConfigurationError, Unauthorized
from state_lib.host.http import HttpServer
from state_lib.host.tasks import TaskManager
from state_lib.kafka import Kafka
from state_lib.protocol.addresses import HostAddress
from state_lib.stack.ports import free_port
from state_lib.task import TaskContext

RIGHT = "the-right-one"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[str]:
    """A host that wants a token, behind one that is away; as HOLDFAST_HOSTS."""
    address = HostAddress("h2", "127.0.0.1", free_port(), free_port())
    nowhere = Kafka({"bootstrap.servers": "127.0.0.1:1"})
    manager = TaskManager(TaskContext(KafkaLog(nowhere), "h2", tmp_path), (address,), 60)
    server = HttpServer(manager, address, RIGHT)
    server.start()
    away = f"h1=127.0.0.1:{free_port()}/{free_port()}"
    yield f"{away},h2=127.0.0.1:{address.flight_port}/{address.http_port}"
    server.stop()


def test_the_right_token_passes(host: str) -> None:
    check_token(Settings.load(hosts=host, token=RIGHT))


@pytest.mark.parametrize("token", ["wrong", None])
def test_another_token_is_refused_with_what_to_do(host: str, token: str | None) -> None:
    with pytest.raises(Unauthorized, match=r"'h2'.*HOLDFAST_TOKEN_FILE.*workers"):
        check_token(Settings.load(hosts=host, token=token))


def test_a_token_file_that_is_not_there(host: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot read HOLDFAST_TOKEN_FILE"):
        check_token(Settings.load(hosts=host, token_file=tmp_path / "nothing"))


def test_hosts_that_are_away_are_the_drivers_business() -> None:
    check_token(Settings.load(hosts=f"h1=127.0.0.1:{free_port()}/{free_port()}", token=RIGHT))
