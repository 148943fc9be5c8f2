from __future__ import annotations

import json
from typing import Any

import pytest

from state_lib import serdes
from state_lib.errors import ConfigurationError
from state_lib.serdes import Bytes, Float64, Int64, Json, Struct, Utf8, serde_from

NESTED = {"array": {"map": ["utf8", {"struct": [["a", "decimal(5,2)"]]}]}}
ALL = [
    *(Bytes(), Utf8(), Int64(), Float64(), Json(), Struct(self="int64", name="utf8")),
    *(Struct(nested=NESTED), serde_from("date"), serde_from("decimal(10,2)")),
]


@pytest.mark.parametrize("serde", ALL, ids=str)
def test_a_description_survives_json(serde: Any) -> None:
    again = serde_from(json.loads(json.dumps(serde.describe())))
    assert again == serde
    assert type(again) is type(serde)
    assert hash(again) == hash(serde)


def test_different_serdes_differ() -> None:
    assert Int64() != Float64()
    assert Struct(a="int64", b="int64") != Struct(b="int64", a="int64")


@pytest.mark.parametrize(
    "description",
    [
        "pickle",
        None,
        7,
        {},
        {"struct": []},
        {"struct": "int64"},
        {"struct": [["a"]]},
        {"struct": [["a", "int128"]]},
        {"struct": [["a", "int64"], ["a", "utf8"]]},
        {"struct": [["a", "int64"]], "more": 1},
    ],
)
def test_unknown_descriptions_are_configuration_errors(description: Any) -> None:
    with pytest.raises(ConfigurationError):
        serde_from(description)


def test_exported_names() -> None:
    assert serdes.__all__ == [
        "Bytes", "Float64", "Int64", "Json", "Serde", "Struct", "Utf8", "serde_from"
    ]  # fmt: skip
