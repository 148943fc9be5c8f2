"""The HTTP server of a host that knows nothing yet: health, names, the token; no broker needed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from state_lib.changelog.log import KafkaLog
from state_lib.errors import InvalidRequest, Unavailable
from state_lib.host.http import HttpServer
from state_lib.host.metrics import HostMetrics
from state_lib.host.reads import Cursor
from state_lib.host.tasks import TaskManager
from state_lib.kafka import Kafka
from state_lib.protocol.addresses import HostAddress
from state_lib.stack.ports import free_port
from state_lib.task import TaskContext
from state_lib.times import MAX_MS, MIN_MS, iso, parse_time

NOWHERE = Kafka({"bootstrap.servers": "127.0.0.1:1"})


def server_at(path: Path, token: str | None, port: int | None = None) -> HttpServer:
    address = HostAddress("h1", "127.0.0.1", free_port(), port or free_port())
    return HttpServer(
        TaskManager(TaskContext(KafkaLog(NOWHERE), "h1", path), (address,), 60), address, token
    )


def url_of(server: HttpServer) -> str:
    return server._address.http_url


@pytest.fixture(scope="module", params=[None, "secret"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = server_at(tmp_path_factory.mktemp("state"), request.param)
    server.start()
    yield url_of(server)
    server.stop()


def test_health_and_description_need_no_token(url: str) -> None:
    assert httpx.get(f"{url}/livez").json() == {"status": "alive"}
    assert httpx.get(f"{url}/readyz").json() == {
        "status": "ready", "waiting": 0, "not_ready": {},
    }  # fmt: skip
    assert httpx.get(f"{url}/openapi.json").json()["info"]["title"] == "Holdfast host"


@pytest.mark.parametrize("path", ["/metrics", "/v1/apps", "/v1/apps/a/stores", "/docs", "/"])
def test_a_configured_token_is_needed_elsewhere(url: str, path: str) -> None:
    right = httpx.get(url + path, headers={"Authorization": "bearer secret"}).status_code
    assert right != 401
    assert httpx.get(url + path).status_code in {401, right}
    if httpx.get(f"{url}/v1/apps").status_code == 401:
        for wrong in ("Bearer Secret", "Bearer", "Bearer  secret", "Basic secret", "secret", "ü"):
            refused = httpx.get(url + path, headers={b"Authorization": wrong.encode()})
            assert (refused.status_code, refused.json()["code"]) == (401, "unauthorized")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed(url: str, method: str) -> None:
    refused = httpx.request(method, f"{url}/v1/apps", headers={"Authorization": "Bearer secret"})
    assert (refused.status_code, refused.json()["code"]) == (405, "invalid-request")


def test_an_unknown_application_asks_no_broker(url: str) -> None:
    """Otherwise a read could make a host open tasks, and so fence another deployment's."""
    answer = httpx.get(
        f"{url}/v1/apps/some/stores", headers={"Authorization": "Bearer secret"}, timeout=2
    )
    assert (answer.status_code, answer.json()["code"]) == (404, "not-found")
    assert answer.json()["details"] == {"app": "some", "known": []}


def test_a_taken_port_is_an_error_at_start(tmp_path: Path) -> None:
    first = server_at(tmp_path, None)
    first.start()
    try:
        with pytest.raises(Unavailable, match="did not start"):
            server_at(tmp_path, None, first._address.http_port).start()
    finally:
        first.stop()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url_of(first)}/livez")


def test_commits_and_restores_are_counted() -> None:
    metrics = HostMetrics()
    metrics.on_commit("app/1", {"s": 3}, 0.02)
    metrics.on_commit("app/1", {"s": 4, "t": 0}, 0.2)
    metrics.on_restore_start("app/1", "s", 10, 110)
    metrics.on_batch_restored("app/1", "s", 30, 50)
    value = metrics.registry.get_sample_value
    store = {"app": "app", "task": "app/1", "store": "s"}
    assert value("holdfast_put_total", store) == 7
    assert value("holdfast_commit_latency_seconds_count", {"app": "app", "task": "app/1"}) == 2
    assert value("holdfast_restore_remaining_records_total", store) == 60
    assert (value("holdfast_restore_rate", store) or 0) > 0
    metrics.on_restore_error("app/1", "Kafka is away")
    assert value("holdfast_restore_rate", store) == 0, "nothing moves"
    metrics.on_restore_start("app/1", "s", 50, 110)
    metrics.on_batch_restored("app/1", "s", 0, 60)
    metrics.on_batch_restored("app/1", "s", 60, 110)
    assert (value("holdfast_restore_rate", store) or 0) > 0
    metrics.on_restore_end("app/1", "s", 60)
    assert value("holdfast_restore_remaining_records_total", store) == 0
    assert value("holdfast_restore_rate", store) == 0
    assert value("holdfast_restore_total", store) == 90


def test_the_newest_snapshot_counts_whichever_is_found_last() -> None:
    metrics = HostMetrics()
    for task, written_at in (("app/1", 2_000), ("app/0", 500), ("app/1", 1_000)):
        metrics.on_snapshot(task, written_at)
    value, name = metrics.registry.get_sample_value, "holdfast_snapshot_timestamp_seconds"
    assert value(name, {"app": "app", "task": "app/1"}) == 2
    assert value(name, {"app": "app", "task": "app/0"}) == 0.5


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0", 0),
        ("-1", -1),
        (str(MAX_MS), MAX_MS),
        (str(MIN_MS), MIN_MS),
        ("1970-01-01", 0),
        ("1970-01-01T01:00:00.5", 3_600_500),
        ("1970-01-01T01:00+01:00", 0),
        ("2013-06-01T12:00:00Z", 1_370_088_000_000),
    ],
)
def test_times(text: str, ms: int) -> None:
    assert parse_time("from", text, 5) == ms


@pytest.mark.parametrize("text", ["", "now", "1.5", "2013-13-01", str(MAX_MS + 1), "9" * 40, "१"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(InvalidRequest, match="from="):
        parse_time("from", text, 5)


def test_times_are_shown_in_utc_where_a_calendar_has_them() -> None:
    assert iso(-1) == "1969-12-31T23:59:59.999Z"
    assert iso(MAX_MS) is None
    assert iso(MIN_MS) is None


def test_cursors() -> None:
    for cursor in (Cursor(0, b""), Cursor(-5, b"\x00\xff" * 40)):
        assert Cursor.from_text(cursor.to_text()) == cursor
    for text in ("", "x", "é", "bnVsbA", "WzEsIngiXQ", "WyIxIiwiIl0", "WzEsIiIsMl0", "W1tdLCIiXQ"):
        with pytest.raises(InvalidRequest):
            Cursor.from_text(text)
