"""Hosts that leave lost stores to Airflow, for each file that names its application `APP`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from state_lib.stack import Stack
from tests.dags.conftest import Connect
from tests.support.restore_group import Group, made_whole, running_group


@pytest.fixture(scope="module")
def running(
    stack: Stack, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Group]:
    app: str = request.module.APP
    with running_group(stack.settings, app, tmp_path_factory.mktemp(app)) as made:
        yield made


@pytest.fixture
def group(running: Group, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> Group:
    return made_whole(running, connect, monkeypatch)
