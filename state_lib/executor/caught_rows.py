"""A user's function of several rows at a time, as executors call it: it never raises.

Where it fails on some rows it is called anew on each half of them, until it fails on single ones.
So f rows of n are found by 1 + 2·f·⌈log₂ n⌉ calls at most, and never by more than 2·n - 1. Many
rows of which no single one fails, but all together do, are fine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_type

from state_lib.declaration import CallKind
from state_lib.executor.caught import VALUE, function_of, result_type, said_of
from state_lib.executor.caught_arrow import OtherCount, of_array
from state_lib.executor.process.failures import PASSING

_Part = tuple[int, Any, str | None]
_Call = Callable[[list[Any], int], Any]
"""Of arguments of so many rows makes values of the declared type."""


class CaughtRows:
    """Calls a function on those rows of a batch that are to be used.

    Spark is told that it is a scalar Arrow UDF. What a function gives for a row must depend on that
    row alone: which others it is called with differs from try to try.

    Args:
        command: the function and its type, pickled by PySpark.
        keywords: of each argument the name by which it is given; empty where it has none.
        gives: the type of its results.
        at: how errors call the step.
        kind: what it is given: Series, arrays, or an iterator of one batch of them.
    """

    def __init__(
        self,
        command: bytes,
        keywords: Sequence[str],
        gives: T.DataType,
        at: str,
        kind: CallKind,
    ) -> None:
        self._command, self._at, self._kind = command, at, kind
        self._keywords, self.gives = tuple(keywords), gives
        self._call: _Call | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_call": None}

    def __call__(self, usable: pa.Array, *given: pa.Array) -> pa.Array:
        """For each row what `result_type` says; of one that is not ``usable`` nothing.

        Raises:
            RuntimeError: as `Caught`.
        """
        whole = to_arrow_type(result_type(self.gives), timezone="UTC")
        usable = pc.fill_null(usable, False)  # noqa: FBT003 - Arrow wants it so
        many = usable.true_count
        args = list(given) if many == len(usable) else [one.filter(usable) for one in given]
        fine, values, errors = _joined(self._tried(args, 0, many) if many else [], whole)
        if many < len(usable):
            place = pc.subtract(pc.cumulative_sum(usable.cast(pa.int64())), 1)
            place = pc.if_else(usable, place, pa.scalar(None, pa.int64()))
            fine = pc.fill_null(fine.take(place), False)  # noqa: FBT003 - as above
            values, errors = values.take(place), errors.take(place)
        return pa.StructArray.from_arrays([fine, values, errors], fields=list(whole))

    # ------------------------------------------------------------------ inside

    def _tried(self, args: list[Any], start: int, many: int) -> list[_Part]:
        """Some rows in their order, some at a time: how many, and their values or the error."""
        values, error, is_count = self._try([one.slice(start, many) for one in args], many)
        if error is None or many == 1:
            return [(many, values, error)]
        half = many // 2
        parts = self._tried(args, start, half) + self._tried(args, start + half, many - half)
        if is_count and all(said is None or some > 1 for some, _, said in parts):
            return [(many, None, error)]  # no single one is at fault: it is no function of rows
        return parts

    def _try(self, args: list[Any], many: int) -> tuple[Any, str | None, bool]:
        call = self._call = self._call or self._made()
        try:
            return call(args, many), None, False
        except PASSING:
            raise
        except BaseException as error:  # noqa: BLE001 - also SystemExit, and Rust's libraries' own
            return None, said_of(error, self._at), isinstance(error, OtherCount)

    def _made(self) -> _Call:
        function, keywords = function_of(self._command, self._at), self._keywords
        places = sum(not name for name in keywords)
        if self._kind.endswith("-iter"):
            function = _of_one_batch(function)
        given_as: Callable[[list[Any]], list[Any]] = list
        if self._kind.startswith("pandas"):
            from state_lib.executor import caught_pandas  # noqa: PLC0415 - it takes half a second

            taken, given_as = caught_pandas.of_series(self.gives), caught_pandas.series
        else:
            taken = of_array(self.gives)

        def call(args: list[Any], many: int) -> Any:
            given = given_as(args)
            named = dict(zip(keywords[places:], given[places:], strict=True))
            made = taken(function(*given[:places], **named), many)
            return pa.concat_arrays([made[:0], made])  # a copy: it may fill the same memory again

        return call


def _joined(parts: list[_Part], whole: Any) -> tuple[Any, Any, Any]:
    """Arrays of what is fine, of values and of errors."""
    kind = whole.field(VALUE).type
    fine, values, errors = [pa.array([], pa.bool_())], [pa.nulls(0, kind)], [pa.nulls(0, pa.utf8())]
    for many, made, error in parts:
        fine.append(pa.repeat(error is None, many))
        values.append(made if error is None else pa.nulls(many, kind))
        errors.append(pa.array([error] * many, pa.utf8()))
    return pa.concat_arrays(fine), pa.concat_arrays(values), pa.concat_arrays(errors)


def _of_one_batch(function: Callable[..., Any]) -> Callable[..., Any]:
    """Of a function of batches one of a batch; its arguments are a tuple if there are several."""

    def call(*given: Any) -> Any:
        made = iter(function(iter([given[0] if len(given) == 1 else given])))
        results = list(islice(made, 2))
        if len(results) != 1:
            raise TypeError(
                f"it gave {'several results' if results else 'no result'} for one batch, and is to "
                "give one"
            )
        return results[0]

    return call
