"""Learns of `reduce` and `aggregate`, when they are declared, what they keep."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.errors import ParseException
from pyspark.sql.types import DataType, StructField, StructType

from state_lib.driver.meaning import meaning_of
from state_lib.errors import ConfigurationError
from state_lib.executor.process.codec import RowCodec
from state_lib.executor.process.folding import Folded, Functions
from state_lib.executor.process.values import shown
from state_lib.processing import Fold, Process, Processor, State
from state_lib.serdes.kinds import Kind, columns_of
from state_lib.spark.entries import explodes
from state_lib.spark.process.declaring import known_on_error
from state_lib.spark.sources import ddl_of, said, schema_of, seen

if TYPE_CHECKING:
    from state_lib.declaration import Expression
    from state_lib.specs import StoreSpec
    from state_lib.streams import KStream

VALUE = "value"
"""The column of a value that has one type and no columns."""


@dataclass(frozen=True)
class Wanted:
    """What `reduce` (without ``begin`` and ``schema``) or `aggregate` is given."""

    join: Callable[..., Any]
    on_error: str
    key_name: str
    own: frozenset[str] = frozenset()
    """Names of the key, or of its columns, by which rows have the very same."""
    begin: Callable[[], Any] | None = None
    schema: DataType | str | None = None


def fold_of(
    stream: KStream,
    key: Expression,
    serde: Kind,
    wanted: Wanted,
    store: Callable[[object, list[str], list[str]], StoreSpec],
    at: str,
) -> Process:
    """The verb that folds.

    Args:
        stream: the rows.
        key: what they are grouped by.
        serde: of the key.
        wanted: as a user says it.
        store: makes the store, given the serde of its values, their columns, and those of the key
            that outputs begin with.
        at: how errors call the step.

    Raises:
        ConfigurationError: naming the step.
    """
    rows = seen(stream._rows)  # noqa: SLF001 - ours
    schema, single = (rows, False) if wanted.schema is None else _schema(wanted.schema, at)
    key_name, key_columns = _of_key(serde, wanted)
    of_key = [*([key_name] if key_name else []), *key_columns]
    spec = store(_serde(schema, wanted, at), schema.names, of_key)
    spec = replace(spec, state=f"value {schema.simpleString()}")
    _check_call(wanted.join, 2 if wanted.begin is None else 3, at)
    if wanted.begin is not None:
        _check_call(wanted.begin, 0, at)
    code = _pickled(wanted, at)
    _check_first(code, Folded(schema.json(), single=single), at)
    processor = Processor(
        name=spec.name,
        code=code,
        states=(State(VALUE, "value", schema.json()),),
        rows=rows.json(),
        results=schema.json(),
        key_serde=serde,
        time_mode="none",
        on_error=known_on_error(wanted.on_error, at),
        explodes=explodes(stream._steps),  # noqa: SLF001 - ours
        fold=Fold(spec, key_name, single=single, key_columns=key_columns),
    )
    return Process(
        source=stream._source,  # noqa: SLF001 - ours
        steps=stream._steps,  # noqa: SLF001 - ours
        key=key,
        processor=processor,
        stores=(spec,),
        code=meaning_of(wanted.begin, wanted.join),
    )


def _of_key(serde: Kind, wanted: Wanted) -> tuple[str, tuple[str, ...]]:
    """How outputs call the key as one, and which of its columns they begin with.

    A row that is reduced has what it is grouped by already, where that is one of its columns.
    """
    own = wanted.own if wanted.schema is None else frozenset()
    if wanted.key_name:
        return "" if wanted.key_name in own else wanted.key_name, ()
    return "", tuple(name for name, _ in columns_of(serde) if name not in own)


def _schema(given: DataType | str, at: str) -> tuple[StructType, bool]:
    """The columns of a value, and whether it is of one type instead."""
    try:
        made: Any = StructType.fromDDL(given) if isinstance(given, str) else given
    except ParseException as error:
        raise ConfigurationError(f"{at}: {given!r} is no DDL: {said(error)}") from error
    if isinstance(made, StructType):
        return schema_of(ddl_of(made)), False
    if not isinstance(made, DataType):
        raise ConfigurationError(
            f"{at}: the value's schema is {given!r}: write DDL, like 'n BIGINT, total DOUBLE', or "
            "'BIGINT' for a single value"
        )
    return StructType([StructField(VALUE, made)]), True


def _serde(schema: StructType, wanted: Wanted, at: str) -> object:
    if hidden := [name for name in schema.names if name.startswith("_")]:
        raise ConfigurationError(
            f"{at}: columns {hidden} begin with '_', and would be hidden in queries: rename them"
        )
    try:
        serde = RowCodec(schema).serde
        for field in schema.fields:
            shown(field.dataType)
    except (TypeError, ConfigurationError) as error:
        hint = ". All columns are kept: select(...) those that are wanted before groupBy(...)"
        raise ConfigurationError(f"{at}: {error}{'' if wanted.schema else hint}") from error
    return serde


def _check_call(function: object, arguments: int, at: str) -> None:
    if not callable(function):
        raise ConfigurationError(f"{at} takes a function, not {function!r}")
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):  # some built-in functions have no known signature
        return
    try:
        signature.bind(*range(arguments))
    except TypeError as error:
        takes = {0: "nothing", 2: "(old, new)", 3: "(key, row, old)"}[arguments]
        raise ConfigurationError(
            f"{at} calls {getattr(function, '__name__', function)}{signature} with {takes}: {error}"
        ) from error


def _pickled(wanted: Wanted, at: str) -> bytes:
    try:
        code: bytes = cloudpickle.dumps((wanted.begin, wanted.join))
        pickle.loads(code)  # noqa: S301 - made above
    except Exception as error:
        raise ConfigurationError(
            f"{at}: the function cannot be pickled, and executors make theirs of that: {error}. "
            "Let it hold no connection, lock or session"
        ) from error
    return code


def _check_first(code: bytes, folded: Folded, at: str) -> None:
    try:
        Functions(code, folded).first()
    except Exception as error:
        raise ConfigurationError(
            f"{at}: the initializer gives no value of this type: {type(error).__name__}: {error}"
        ) from error
