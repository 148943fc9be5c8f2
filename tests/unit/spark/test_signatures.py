"""Verbs that PySpark has are called as PySpark's: their parameters' names, kinds and defaults."""

from __future__ import annotations

import inspect
from inspect import Parameter
from typing import Any

import pytest
from pyspark.sql import DataFrame, GroupedData

from state_lib import KGroupedStream, KStream


def parameters(of: type, verb: str) -> list[tuple[str, Any, Any]]:
    found = inspect.signature(getattr(of, verb)).parameters.values()
    return [(one.name, one.kind, one.default) for one in found]


@pytest.mark.parametrize(
    "verb",
    [
        "select",
        "selectExpr",
        "withColumn",
        "withColumnRenamed",
        "drop",
        "where",
        "filter",
        "groupBy",
    ],
)
def test_verbs_for_rows_have_the_parameters_of_dataframes(verb: str) -> None:
    assert parameters(KStream, verb) == parameters(DataFrame, verb)


def test_several_columns_are_given_as_one_map() -> None:
    """PySpark writes ``*colsMap``, and takes exactly one."""
    names = [[name for name, *_ in parameters(of, "withColumns")] for of in (KStream, DataFrame)]
    assert names[0] == names[1]


@pytest.mark.parametrize("verb", ["transformWithState", "transformWithStateInPandas"])
def test_processors_have_those_of_grouped_data_and_then_ours_by_name(verb: str) -> None:
    sparks, ours = parameters(GroupedData, verb), parameters(KGroupedStream, verb)
    assert ours[: len(sparks)] == sparks
    more = {name: (kind, default) for name, kind, default in ours[len(sparks) :]}
    assert {kind for kind, _ in more.values()} == {Parameter.KEYWORD_ONLY}
    assert [name for name, (_, default) in more.items() if default is Parameter.empty] == ["name"]
