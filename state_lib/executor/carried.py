"""Typed errors out of executors' Python functions, where Spark keeps their text alone.

What an exchange raises comes back as a row (`state_lib.executor.exchange`). What is raised before
the shuffle must fail the job: else some tasks would commit a batch of which rows are missing.
"""

from __future__ import annotations

import re
from json import JSONDecoder

import orjson

from state_lib.errors import HoldfastError, from_wire

_MARK = "holdfast-error"
_DECODER = JSONDecoder()  # orjson takes no text after it
_CARRIED = re.compile(rf"{_MARK} (?=\{{)")


class Carried(Exception):
    """An error on its way through Spark: its text is all of it."""

    def __init__(self, error: HoldfastError) -> None:
        super().__init__(f"{_MARK} {orjson.dumps(error.to_wire()).decode()}")


def arrived(error: BaseException) -> HoldfastError | None:
    """The error that was `Carried`, if Spark's is about one."""
    text = str(error)
    for found in _CARRIED.finditer(text):
        try:
            return from_wire(_DECODER.raw_decode(text, found.end())[0])
        except ValueError:  # cut short: it may be there once more
            continue
    return None
