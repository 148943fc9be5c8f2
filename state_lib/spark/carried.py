"""Typed errors out of executors' Python functions, where Spark keeps their text alone.

What an exchange raises comes back as a row (`state_lib.spark.exchange`). What is raised before the
shuffle must fail the job: else some tasks would commit a batch of which rows are missing.
"""

from __future__ import annotations

import re

import orjson

from state_lib.errors import HoldfastError, from_wire

_MARK = "holdfast-error"
_CARRIED = re.compile(rf"{_MARK} (\{{.*\}})")


class Carried(Exception):
    """An error on its way through Spark: its text is all of it."""

    def __init__(self, error: HoldfastError) -> None:
        super().__init__(f"{_MARK} {orjson.dumps(error.to_wire()).decode()}")


def arrived(error: BaseException) -> HoldfastError | None:
    """The error that was `Carried`, if Spark's is about one."""
    found = _CARRIED.search(str(error))
    if found is None:
        return None
    try:
        return from_wire(orjson.loads(found[1]))
    except orjson.JSONDecodeError:
        return None
