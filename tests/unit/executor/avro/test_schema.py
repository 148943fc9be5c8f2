"""Schemas of Avro: one form of each, and Spark's columns for them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from state_lib.errors import ConfigurationError
from state_lib.executor.avro.schema import columns_of, normal, pinned
from tests.support.registry import record


def ddl(schema: Any) -> str:
    text = pinned([json.dumps(schema)], "it")
    return str(columns_of(text).simpleString())


def long(logical: str) -> dict[str, str]:
    return {"type": "long", "logicalType": logical}


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("boolean", "boolean"),
        ("int", "int"),
        ("long", "bigint"),
        ("float", "float"),
        ("double", "double"),
        ("string", "string"),
        ("bytes", "binary"),
        (["null", "string"], "string"),
        (["string", "null"], "string"),
        (["string"], "string"),
        (["null", "int", "long"], "bigint"),
        (["float", "double"], "double"),
        ({"type": "int", "logicalType": "date"}, "date"),
        (long("timestamp-millis"), "timestamp"),
        (long("timestamp-micros"), "timestamp"),
        (long("local-timestamp-millis"), "timestamp_ntz"),
        (long("local-timestamp-micros"), "timestamp_ntz"),
        (long("time-micros"), "bigint"),
        (long("of-my-own"), "bigint"),
        ({"type": "string", "logicalType": "uuid"}, "string"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
            "decimal(10,2)",
        ),
        (
            {
                "type": "fixed", "name": "Money", "size": 9,
                "logicalType": "decimal", "precision": 20,
            },
            "decimal(20,0)",
        ),
        ({"type": "fixed", "name": "Hash", "size": 4}, "binary"),
        ({"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}, "string"),
        ({"type": "array", "items": ["null", "int"]}, "array<int>"),
        ({"type": "map", "values": long("timestamp-millis")}, "map<string,timestamp>"),
        (record("Inner", x="int", y=["null", "string"]), "struct<x:int,y:string>"),
    ],
)  # fmt: skip
def test_types_are_those_of_sparks_from_avro(kind: Any, column: str) -> None:
    assert ddl(record("Outer", a=kind)) == f"struct<a:{column}>"


def test_a_type_may_be_named_again() -> None:
    inner = record("Inner", x="int")
    again = record("Outer", a=inner, b="Inner", c={"type": "array", "items": "Inner"})
    assert ddl(again) == "struct<a:struct<x:int>,b:struct<x:int>,c:array<struct<x:int>>>"


def test_what_it_refers_to_is_taken_in() -> None:
    texts = [
        json.dumps(record("Inner", x="int")),
        json.dumps(record("Outer", a="holdfast.tests.Inner", b="holdfast.tests.Inner")),
    ]
    whole = record("Outer", a=record("Inner", x="int"), b="Inner")
    assert pinned(texts, "it") == pinned([json.dumps(whole)], "it")


def test_how_it_is_written_does_not_matter() -> None:
    one = {"fields": [{"doc": "?", "type": "int", "name": "x"}], "name": "a.R", "type": "record"}
    other = {
        "type": "record", "namespace": "a", "name": "R", "doc": "!",
        "fields": [{"name": "x", "type": "int"}],
    }  # fmt: skip
    assert normal([json.dumps(one)]) == normal([json.dumps(other)])
    assert pinned([pinned([json.dumps(one)], "it")], "it") == pinned([json.dumps(other)], "it")


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("string", "it is no record"),
        (record("R", a="null"), "a is always null"),
        (record("R", a=["string", "int"]), "a is a union of several types"),
        (record("R", a={"type": "array", "items": ["null"]}), r"a\[\] is a union"),
        (record("R", a=record("In", b=["int", "string"])), "a.b is a union"),
        (record("R", a=["null", "R"]), "holdfast.tests.R within itself"),
        (record("R", a=record("Empty")), "a is a record without fields"),
        (
            record("R", a={"type": "bytes", "logicalType": "decimal", "precision": 39}),
            "a decimal of 39 digits",
        ),
        (record("R", a="Nobody"), "no Avro schema"),
        (record("R", a=("int", "x")), "no Avro schema"),
        ({"type": "record"}, "no Avro schema"),
        (5, "no Avro schema"),
    ],
)
def test_what_has_no_columns_is_refused(schema: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        pinned([json.dumps(schema)], "it")


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"flight\.avsc is no Avro schema"):
        pinned(["{"], "flight.avsc")
