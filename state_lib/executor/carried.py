"""Typed errors from executors' Python functions, of which Spark passes on only the text.

Errors of an exchange come back as rows (`state_lib.executor.exchange`). An error before the shuffle
must fail the job, else some tasks would commit a batch with rows missing.
"""

from __future__ import annotations

import re
from json import JSONDecoder

import orjson

from state_lib.errors import HoldfastError, from_wire

_MARK = "holdfast-error"
_DECODER = JSONDecoder()  # orjson does not accept trailing text
_CARRIED = re.compile(rf"{_MARK} (?=\{{)")


class Carried(Exception):
    """An error on its way through Spark, as JSON in its text."""

    def __init__(self, error: HoldfastError) -> None:
        super().__init__(f"{_MARK} {orjson.dumps(error.to_wire()).decode()}")


def arrived(error: BaseException) -> HoldfastError | None:
    """The error that was `Carried` by one of Spark's; None if there is none."""
    text = str(error)
    for found in _CARRIED.finditer(text):
        try:
            return from_wire(_DECODER.raw_decode(text, found.end())[0])
        except ValueError:  # truncated here; the text may contain it once more
            continue
    return None
