"""Exceptions of users' code as reasons of dead letters, or as errors that stop the stream."""

from __future__ import annotations

import errno
import re
import traceback
from collections.abc import Sequence
from typing import Any

from state_lib.errors import ProcessorFailed, ProcessorUnready
from state_lib.processing import Processor

_SAID = 500
"""Characters of an exception in a dead letter."""
_LINES = 6
"""Lines of a traceback in an error."""
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_SCARCE = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC}

PASSING = (ProcessorUnready, KeyboardInterrupt, GeneratorExit)
"""Exceptions that are not from users' code. All others may be a row's fault, `SystemExit` too."""


def is_of_machine(error: BaseException) -> bool:
    """Whether the machine is at fault and no row: another try or machine may do better."""
    if isinstance(error, OSError):
        return error.errno in _SCARCE
    return isinstance(error, MemoryError | ImportError)


class TooLarge(Exception):
    """An entry or an output that is too large for its topic."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"a record of {size} bytes, and its topic takes {limit}")
        self.size, self.limit = size, limit


def described(error: BaseException) -> str:
    """An exception in one line, the same in every process; the class alone if its text raises."""
    try:
        said = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - a user's class, whose text raises
        said = type(error).__name__
    said = " ".join(_ADDRESS.sub("", said).split())[:_SAID]
    return said.encode(errors="replace").decode()  # JSON has no lone surrogates


def reason_of(processor: Processor, error: BaseException, otherwise: str = "raised") -> str:
    """The reason in dead letters of rows on which a processor raised."""
    word = "too-large" if isinstance(error, TooLarge) else otherwise
    return f"{word}:{processor.name}"


def last_words(error: BaseException) -> str:
    """The end of its traceback."""
    last = "".join(traceback.format_exception(error)).strip().splitlines()[-_LINES:]
    return "It said:\n" + "\n".join(last)


def failed(
    processor: Processor,
    task: int,
    error: BaseException,
    method: str,
    key: bytes | None,
    shown: Sequence[Any] = (),
) -> ProcessorFailed:
    """The error that stops the stream; ``shown``: the columns of the key as a user knows them."""
    at = "" if key is None else f" on key {', '.join(map(repr, shown))}"
    does, help_, words = f"raised in {method}", "Mend it", " " + last_words(error)
    if isinstance(error, TooLarge):
        does, help_, words = f"makes {error}", "Let that take more (max.message.bytes)", ""
    return ProcessorFailed(
        f"{_called(processor)} {does}{at}: task {task} has committed nothing of the batch. {help_} "
        f"and start again, or declare it with onError='dead-letter'.{words}",
        processor=processor.name,
        method=method,
        key=None if key is None else key.hex(),
    )


def unready(processor: Processor, task: int, error: BaseException, method: str) -> ProcessorUnready:
    """The error for failures that belong to no row and no key: another try may help."""
    hint = "Is what it imports installed there? " if isinstance(error, ImportError) else ""
    return ProcessorUnready(
        f"{_called(processor)} raised in {method} on task {task}, which has committed nothing of "
        f"the batch. It is tried again. {hint}{last_words(error)}",
        processor=processor.name,
        task=task,
    )


def _called(processor: Processor) -> str:
    return f"{'processor' if processor.fold is None else 'store'} {processor.name!r}"
