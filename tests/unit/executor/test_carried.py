"""Errors out of executors, of which Spark keeps the text. No Spark."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from state_lib.errors import UnknownSchemas
from state_lib.executor.carried import Carried, arrived

ERROR = UnknownSchemas("it does not know {7}", url="u", ids=[7])


@pytest.mark.parametrize("behind", ["", "}", " } and {more}", '\n"} at File', '{"code":"error"}'])
def test_an_error_arrives_whatever_stands_around_it(behind: str) -> None:
    text = f"Traceback {{\n state_lib.executor.carried.Carried: {Carried(ERROR)}{behind}"
    found = arrived(PySparkException(text))
    assert isinstance(found, UnknownSchemas)
    assert (found.message, found.details) == (ERROR.message, ERROR.details)


def test_one_that_was_cut_short_is_taken_where_it_is_whole() -> None:
    text = str(Carried(ERROR))
    found = arrived(PySparkException(f"{text[:-20]}\n{text}"))
    assert isinstance(found, UnknownSchemas)
    assert arrived(PySparkException(text[:-20])) is None
    assert arrived(PySparkException("holdfast-error of another kind")) is None
