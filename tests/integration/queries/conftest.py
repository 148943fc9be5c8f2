"""One pair of hosts for all files: what they hold is only read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from state_lib.client.query import QueryClient
from state_lib.kafka import Kafka
from tests.support.queried import (
    TOKEN,
    Cluster,
    running,
)


@pytest.fixture(scope="package")
def cluster(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(kafka, tmp_path_factory.mktemp("hosts")) as made:
        yield made


@pytest.fixture(scope="package")
def client(cluster: Cluster) -> Iterator[QueryClient]:
    with QueryClient(cluster.hosts, TOKEN, page_rows=7) as made:
        yield made
