"""What may be asked of ``spark.read.format("holdfast")``, and which keys that means."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from state_lib.errors import ConfigurationError, InvalidName, InvalidRequest, SerdeError
from state_lib.protocol.addresses import parse_hosts
from state_lib.serdes import Struct
from state_lib.spark.source import target
from state_lib.spark.source.options import ReadOptions
from state_lib.spark.source.target import keys_of
from state_lib.specs import StoreSpec

ASKED = {"app": "flights", "store": "aircraft"}
HOSTS = "host-1=127.0.0.1:1/2"
PAIR = Struct(a="int64", b="bytes")


def test_all_options_whatever_their_case() -> None:
    given = {
        "APP": "flights",
        "Store": "aircraft",
        "columns": "key, Miles",
        "key": "N1",
        "snapshot": "latest",
        "hosts": HOSTS,
        "snapshots_URL": "/mnt/x",
    }
    assert ReadOptions.parse(given) == ReadOptions(
        "flights",
        "aircraft",
        columns=("key", "Miles"),
        key="N1",
        snapshot="latest",
        hosts=parse_hosts(HOSTS),
        snapshots_url="/mnt/x",
    )
    assert ReadOptions.parse(ASKED) == ReadOptions("flights", "aircraft")


@pytest.mark.parametrize(
    ("more", "error", "said"),
    [
        ({"stores": "x"}, InvalidRequest, r"unknown options \['stores'\]; known: \['app', "),
        ({"path": "/x"}, InvalidRequest, "unknown options"),
        ({"app": ""}, InvalidRequest, "'app' is missing, id of the application"),
        ({"app": "../up"}, InvalidName, "application name"),
        ({"store": "a b"}, InvalidName, "store name"),
        ({"columns": "key,,value"}, InvalidRequest, "name each column once"),
        ({"columns": "key,Key"}, InvalidRequest, "name each column once"),
        ({"columns": ""}, InvalidRequest, "name each column once"),
        ({"hosts": "nonsense"}, ConfigurationError, "is not 'id=address:flight-port/http-port'"),
        ({"key": "a", "keys": '["b"]'}, InvalidRequest, "exclude each other"),
    ],
)
def test_what_makes_no_sense_is_refused(
    more: dict[str, str], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        ReadOptions.parse({**ASKED, **more})


@pytest.mark.parametrize("name", ["token", "HOLDFAST_TOKEN", "token_file", "bearerToken"])
def test_a_token_is_no_option_and_is_not_shown(name: str) -> None:
    with pytest.raises(InvalidRequest, match="HOLDFAST_TOKEN_FILE") as refused:
        ReadOptions.parse({**ASKED, name: "very-secret"})
    assert "very-secret" not in repr(refused.value.to_wire())


def asked(serde: Any, **more: str) -> tuple[bytes, ...] | None:
    spec = StoreSpec("s", key_serde=serde)
    return keys_of(spec, ReadOptions("app", "s", **more))  # type: ignore[arg-type]


def test_keys_are_written_as_in_queries() -> None:
    one, two = (i.to_bytes(8, "big") for i in (1, 2))
    assert asked("utf8") is None
    assert asked("utf8", key="[JFK]") == (b"[JFK]",)
    assert asked("utf8", keys='["b", "a", "a"]') == (b"a", b"b")
    assert asked("int64", key="1") == (one,)
    assert asked("int64", keys="[2, 1]") == (one, two)
    assert asked("bytes", keys='["00ff"]') == (b"\x00\xff",)
    assert asked("json", keys='[{"b": 1, "a": 2}]') == (b'{"a":2,"b":1}',)
    assert asked(PAIR.describe(), keys='[{"a": 1, "b": "ff"}]') == (
        PAIR.serialize({"a": 1, "b": b"\xff"}),
    )
    assert asked("date", key="1970-01-02") == (b"\x80\0\0\1",)
    route = Struct(origin="utf8", day="date")
    key = route.serialize({"origin": "JFK", "day": date(1970, 1, 2)})
    shown = '{"origin": "JFK", "day": "1970-01-02"}'
    assert (
        asked(route.describe(), key=shown) == asked(route.describe(), keys=f"[{shown}]") == (key,)
    )
    assert asked("utf8", keys="[]") == ()


@pytest.mark.parametrize(
    ("serde", "more", "error"),
    [
        ("int64", {"key": "one"}, InvalidRequest),
        ("utf8", {"keys": "JFK"}, InvalidRequest),
        ("utf8", {"keys": '"JFK"'}, InvalidRequest),
        ("utf8", {"keys": "[1]"}, SerdeError),
        ("bytes", {"keys": '["xyz"]'}, InvalidRequest),
        ("bytes", {"keys": "[1]"}, InvalidRequest),
        ("int64", {"keys": "[1.5]"}, SerdeError),
    ],
)
def test_what_is_no_key_is_refused(
    serde: str, more: dict[str, str], error: type[Exception]
) -> None:
    with pytest.raises(error):
        asked(serde, **more)


def test_too_many_keys_are_a_join(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "MOST_KEYS", 2)
    assert asked("int64", keys="[1, 2, 2]") is not None
    with pytest.raises(InvalidRequest, match="join it with them"):
        asked("int64", keys="[1, 2, 3]")
