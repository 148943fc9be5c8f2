"""Queries beside commits."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from state_lib.client.query import QueryClient
from state_lib.kafka import Kafka
from state_lib.keys import partition_for, window_key
from state_lib.serdes import serde_from
from state_lib.task import Puts
from tests.support.queried import (
    NOON,
    PARTITIONS,
    TOKEN,
    Cluster,
    ask,
    running,
)
from tests.support.waiting import deadline_in

APP = "committed.app"


@pytest.fixture(scope="module")
def cluster(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(kafka, tmp_path_factory.mktemp("hosts"), APP) as made:
        yield made


def test_answers_equal_the_changelog_at_their_position(cluster: Cluster) -> None:
    """Every commit n sets all entries of its task to n: any mixture would show."""
    stop = threading.Event()
    keys = {
        p: [f"c{i}" for i in range(99) if partition_for(f"c{i}".encode(), 3) == p]
        for p in (0, 1, 2)
    }
    failures: list[BaseException] = []

    def write() -> None:
        try:
            while not stop.is_set():
                for p in range(PARTITIONS):
                    n = cluster.task(p).marker.batch_number + 1
                    value, rows = serde_from("int64").serialize(n), [k.encode() for k in keys[p]]
                    windows = [window_key(k, NOON) for k in rows]
                    size = len(rows)
                    cluster.commit(
                        p,
                        {
                            "counter": Puts(rows, [value] * size, [NOON] * size),
                            "hours": Puts(windows, [value] * size, [NOON] * size),
                        },
                    )
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failures.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with QueryClient(cluster.hosts, TOKEN) as client:
            looked, deadline = 0, deadline_in(60)
            moved: set[int] = set()
            while looked <= 100 or len(moved) <= 3:  # commits go on meanwhile
                assert time.monotonic() < deadline, (looked, moved)
                found = client.get(APP, "counter", "c7")
                if found is None:
                    continue
                assert found["value"] == found["position"][found["task"]]["batch_number"]
                moved.add(found["value"])
                for host in cluster.hosts:
                    for path in ("counter/range", "hours/windows"):
                        page = ask(host.http_url, f"/v1/apps/{APP}/stores/{path}", limit=1000)
                        at = page["position"]
                        rows = [r for r in page["entries"] if r["key"][0] == "c"]
                        for row in rows:
                            p = partition_for(row["key"].encode(), 3)
                            n = at[f"{APP}/{p}"]["batch_number"]
                            assert row["value"] == n
                            assert at[f"{APP}/{p}"]["positions"] == {"lines": {str(p): n}}
                        expected = sum(
                            len(keys[int(t[-1])]) for t, m in at.items() if m["batch_number"] > 1
                        )
                        assert len(rows) == expected
                        looked += len(rows)
    finally:
        stop.set()
        writer.join()
    assert not failures
