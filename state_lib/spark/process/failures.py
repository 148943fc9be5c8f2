"""What becomes of an exception of a user's: a dead letter's reason, or an error that stops."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any

from state_lib.errors import ProcessorFailed
from state_lib.processing import Processor

_SAID = 500
"""Characters of an exception in a dead letter."""
_LINES = 6
"""Of a traceback in an error."""


class TooLarge(Exception):
    """An entry or an output that its topic does not take."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"a record of {size} bytes, and its topic takes {limit}")


def described(error: BaseException) -> str:
    """An exception in one line; one whose text raises by its name alone."""
    try:
        said = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - a user's own, whose text raises
        said = type(error).__name__
    said = " ".join(said.split())[:_SAID]
    return said.encode(errors="replace").decode()  # a lone surrogate is no JSON


def reason_of(processor: Processor, error: Exception, otherwise: str = "raised") -> str:
    """Why rows on which it raised are dead letters."""
    word = "too-large" if isinstance(error, TooLarge) else otherwise
    return f"{word}:{processor.name}"


def last_words(error: Exception) -> str:
    """The end of its traceback."""
    last = "".join(traceback.format_exception(error)).strip().splitlines()[-_LINES:]
    return "It said:\n" + "\n".join(last)


def failed(
    processor: Processor,
    task: int,
    error: Exception,
    method: str,
    key: bytes | None,
    shown: Sequence[Any] = (),
) -> ProcessorFailed:
    """The error that stops the stream; ``shown``: the columns of the key as a user knows them."""
    at = "" if key is None else f" on key {', '.join(map(repr, shown))}"
    what = "processor" if processor.fold is None else "store"
    return ProcessorFailed(
        f"{what} {processor.name!r} raised in {method}{at}, and task {task} has committed nothing "
        "of the batch. Mend it and start again, or declare it with onError='dead-letter'. "
        + last_words(error),
        processor=processor.name,
        method=method,
        key=None if key is None else key.hex(),
    )
