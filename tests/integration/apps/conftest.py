"""Two applications on the same two hosts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from state_lib.specs import OutputSpec
from tests.integration.conftest import MakeApp
from tests.support.apps import App
from tests.support.cluster import PARTITIONS, TOKEN, Cluster
from tests.support.hosts import served


@pytest.fixture
def cluster(make_app: MakeApp, tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    with ExitStack() as stack:
        for at in made.addresses:
            manager = stack.enter_context(served(make_app(), at, TOKEN, made.addresses))
            made.managers.append(manager)
        yield made


@pytest.fixture
def applications(make_app: MakeApp, name: str) -> tuple[App, App]:
    """The second one's id begins with the first one's."""
    first, second = make_app(), make_app()
    out = f"{name}-out"
    first.topology = replace(
        first.topology, app=name, partitions=PARTITIONS, outputs=(OutputSpec(out, "kv"),),
        sources=(f"{name}-source",),
    )  # fmt: skip
    second.topology = replace(second.topology, app=f"{name}-more", partitions=PARTITIONS)
    new = [NewTopic(f"{name}-source", 1, 1), NewTopic(f"{name}-kv-changelog-of-a-friend", 1, 1)]
    for future in first.kafka.admin().create_topics(new, operation_timeout=30).values():
        future.result()
    return first, second
