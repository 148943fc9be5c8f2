"""One stack per module; failpoints are disarmed and drivers ended after every test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.cluster import Cluster
from tests.chaos.feed import create, feed


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_FAILPOINTS", "")
        patch.setenv("HOLDFAST_FAILPOINTS_DIR", "")
        made = Cluster(tmp_path_factory.mktemp("chaos"))
        made.stack.up()
        try:
            yield made
        finally:
            made.stack.down()


class Events:
    """The source of one test: knows how much it has written."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.topic = topic
        self._bootstrap = cluster.settings.bootstrap_servers
        self.written = 0
        create(self._bootstrap, topic)

    def more(self, count: int) -> None:
        """Write the next events."""
        feed(self._bootstrap, self.topic, self.written, count)
        self.written += count


@pytest.fixture
def app(request: pytest.FixtureRequest) -> str:
    """An application id of the test's own."""
    name: str = request.node.originalname
    return name.removeprefix("test_").replace("[", "-").replace("]", "")[:60]


@pytest.fixture
def events(cluster: Cluster, app: str) -> Iterator[Events]:
    yield Events(cluster, f"{app}-source")
    cluster.disarm()
    cluster.end_drivers()


__all__ = ["Events", "Path"]
