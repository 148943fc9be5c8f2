"""What is asked wrongly, and who may ask at all."""

from __future__ import annotations

import httpx
import pytest

from state_lib.client.query import QueryClient
from state_lib.errors import InvalidRequest, NotFound, Unauthorized
from tests.support.queried import (
    APP,
    TOKEN,
    Cluster,
    ask,
)

BAD = [
    ("words/range?limit=0", 400),
    ("words/range?limit=10001", 400),
    ("words/range?limit=x", 400),
    ("words/range?cursor=nonsense", 400),
    ("words/range?cursor=WzEsMl0", 400),
    ("words/range?from=%FF", 400),
    ("words/keys/%FF", 400),
    ("numbers/keys/7.5", 400),
    ("numbers/keys/99999999999999999999", 400),
    ("numbers/range?prefix=1", 400),
    ("raw/range?prefix=0", 400),
    ("hours/windows?from=yesterday", 400),
    ("hours/windows?to=9223372036854775808", 400),
    ("hours/keys/k", 400),
    ("hours/range", 400),
    ("words/windows", 400),
    ("words/windows/a", 400),
    ("words/nosuch", 404),
    ("nosuch/keys/a", 404),
    ("..%2Fwords/keys/a", 404),
    ("%2E%2E/keys/a", 400),
    (".hidden/count", 400),
    ("a%00b/count", 400),
    ("%C3%BC/count", 400),
    ("words%2F..%2Fraw/count", 404),
]


@pytest.mark.parametrize(("path", "status"), BAD)
def test_bad_requests_are_told_so(cluster: Cluster, path: str, status: int) -> None:
    body = ask(cluster.hosts[0].http_url, f"/v1/apps/{APP}/stores/{path}", status)
    assert set(body) == {"code", "message", "details"}
    assert body["code"] in {"invalid-request", "invalid-name", "not-found", "serde"}


@pytest.mark.parametrize(
    ("app", "status"),
    [("nosuch", 404), ("%2E%2E", 400), ("a%2Fb", 404), ("%00", 400), ("%C3%A4", 400), ("%FF", 400)],
)
def test_unknown_and_impossible_applications(cluster: Cluster, app: str, status: int) -> None:
    before = sorted(path.name for path in cluster.root.rglob("*") if path.is_dir())
    for rest in ("stores", "stores/words/keys/a", "stores/words/count"):
        assert set(ask(cluster.hosts[0].http_url, f"/v1/apps/{app}/{rest}", status)) == {
            "code",
            "message",
            "details",
        }
    assert sorted(path.name for path in cluster.root.rglob("*") if path.is_dir()) == before


def test_the_client_names_what_is_unknown(client: QueryClient) -> None:
    with pytest.raises(NotFound, match="no application 'nosuch'"):
        client.get("nosuch", "words", "a")
    with pytest.raises(NotFound, match="no store 'nosuch'"):
        client.get(APP, "nosuch", "a")
    with pytest.raises(NotFound):
        client.get("../../x", "words", "a")
    with pytest.raises(InvalidRequest, match="windows"):
        client.get(APP, "hours", "k")


def test_every_route_wants_the_token(cluster: Cluster) -> None:
    url = cluster.hosts[0].http_url
    described = httpx.get(f"{url}/openapi.json").json()
    paths = [p.format(app=APP, store="words", key="a", partition=0) for p in described["paths"]]
    assert len(paths) >= 10
    paths += ["/nosuch", f"/v1/apps/{APP}/stores/words/keys/", "//v1/apps", "/V1/apps", "/metrics/"]
    right = f"Bearer {TOKEN}".encode()
    wrong: list[list[tuple[bytes, bytes]]] = [
        [],
        [(b"Authorization", b"")],
        [(b"Authorization", b"Bearer")],
        [(b"Authorization", b"Bearer " + TOKEN.encode()[:-1])],
        [(b"Authorization", b"Bearer wrong")],
        [(b"Authorization", b"Basic " + TOKEN.encode())],
        [(b"Authorization", TOKEN.encode())],
        [(b"Authorization", right), (b"Authorization", b"Bearer wrong")],
    ]
    with httpx.Client(base_url=url) as http:
        for path in paths:
            if path in {"/livez", "/readyz"}:
                assert http.get(path).status_code == 200
                continue
            for headers in wrong:
                refused = http.get(path, headers=headers)
                assert refused.status_code == 401, path
                assert refused.headers["WWW-Authenticate"] == "Bearer"
                assert refused.json()["code"] == "unauthorized"
            assert http.get(path, headers={b"Authorization": right}).status_code != 401
            assert http.post(path).status_code == 401
    for token in (None, "wrong"):
        with QueryClient(cluster.hosts, token) as other, pytest.raises(Unauthorized):
            other.stores(APP)


def test_openapi_describes_parameters_answers_and_the_token(cluster: Cluster) -> None:
    found = httpx.get(f"{cluster.hosts[0].http_url}/openapi.json").json()
    windows = found["paths"]["/v1/apps/{app}/stores/{store}/windows/{key}"]["get"]
    assert [p["name"] for p in windows["parameters"]] == [
        "key", "app", "store", "limit", "cursor", "from", "to",
    ]  # fmt: skip
    assert all(p.get("description") for p in windows["parameters"])
    assert windows["security"] == [{"HTTPBearer": []}]
    assert {"200", "400", "401", "404", "421", "503"} <= set(windows["responses"])
