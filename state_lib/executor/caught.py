"""A user's function as executors call it: it never raises, so that one row fails and no batch."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import types as T  # noqa: N812

from state_lib.executor.process.failures import PASSING, described, is_of_machine
from state_lib.executor.process.values import checked

FINE, VALUE, ERROR = "fine", "value", "error"
"""Fields of what it gives: whether it came to an end, its value, else what it raised."""
Result = tuple[bool, Any, str | None]


def result_type(value: T.DataType) -> T.StructType:
    """What Spark is told that it gives. All of it may be null: else a null would fail a batch."""
    fields = ((FINE, T.BooleanType()), (VALUE, value), (ERROR, T.StringType()))
    whole: Any = T.StructType([T.StructField(name, kind) for name, kind in fields])
    nullable: T.StructType = whole._as_nullable()  # noqa: SLF001 - Spark has no other
    return nullable


def function_of(command: bytes, at: str) -> Callable[..., Any]:
    """A function, of the bytes that PySpark has made of it and its type.

    Raises:
        RuntimeError: it cannot be made here. ``at`` says how errors call the step.
    """
    try:
        function, _ = pickle.loads(command)  # noqa: S301 - the job's own
    except Exception as error:
        raise RuntimeError(
            f"{at}: its function cannot be made in this worker: {described(error)}. Is "
            "what it imports installed there?"
        ) from error
    made: Callable[..., Any] = function
    return made


def said_of(error: BaseException, at: str) -> str:
    """What a dead letter says of what a function has raised.

    Raises:
        RuntimeError: it is no row's fault. ``at`` says how errors call the step.
    """
    if is_of_machine(error):
        raise RuntimeError(
            f"{at}: its function could not be run in this worker: {described(error)}"
        ) from error
    return described(error)


class Caught:
    """Calls a function where a row is to be used.

    It is made anew in each worker, of the bytes that Spark itself would send.

    Args:
        command: the function and its type, pickled by PySpark.
        keywords: of each argument the name by which it is given; empty where it has none.
        gives: the type of the result.
        at: how errors call the step.
    """

    def __init__(
        self,
        command: bytes,
        keywords: Sequence[str],
        gives: T.DataType,
        at: str,
    ) -> None:
        self._command, self._at = command, at
        self._keywords, self.gives = tuple(keywords), gives
        self._call: Callable[..., Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_call": None}

    def __call__(self, usable: bool, *given: Any) -> Result:  # noqa: FBT001 - Spark gives it so
        """The function's answer for one row; nothing of a row that is not ``usable``.

        Raises:
            RuntimeError: the function cannot be made here, or lacks memory, files or a module: that
                is no row's fault.
        """
        if not usable:
            return False, None, None
        call = self._call = self._call or self._made()
        try:
            return True, call(*given), None
        except PASSING:
            raise
        except BaseException as error:  # noqa: BLE001 - also SystemExit, and Rust's libraries' own
            return False, None, said_of(error, self._at)

    def _made(self) -> Callable[..., Any]:
        function = function_of(self._command, self._at)
        check, keywords = checked(self.gives), self._keywords
        places = sum(not name for name in keywords)

        def call(*given: Any) -> Any:
            named = dict(zip(keywords[places:], given[places:], strict=True))
            value = function(*given[:places], **named)
            return None if value is None else check(value)

        return call
