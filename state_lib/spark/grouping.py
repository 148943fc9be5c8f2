"""What a stream is grouped by: one key, of one column or of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from state_lib.declaration import Expression
from state_lib.errors import ConfigurationError
from state_lib.names import check_column
from state_lib.serdes.kinds import Kind, columns_of
from state_lib.spark.analysis import Resolved, each_resolved, quoted, resolved
from state_lib.spark.kinds import NoKey, key_serde_of
from state_lib.spark.sources import in_another_case


@dataclass(frozen=True)
class Key:
    """What a stream is grouped by.

    Attributes:
        expression: the key.
        serde: what it is kept as.
        name: how it is called; empty: its columns are.
        own: names of it, or of its columns, by which the rows have the very same.
    """

    expression: Expression
    serde: Kind
    name: str
    own: frozenset[str] = frozenset()


def grouped(rows: DataFrame, given: Sequence[Column | str], at: str) -> Key:
    """The key.

    Raises:
        ConfigurationError: the step, and what is wrong with it.
    """
    if not given:
        raise ConfigurationError(f"{at} takes columns or expressions: name one")
    found = each_resolved(rows, [(at, one) for one in given])
    if len(found) == 1:
        key = found[0]
        name = key.name if key.name.isidentifier() else ""
    else:
        key, name = _together(rows, found, at), ""
    try:
        serde = key_serde_of(key.data_type)
    except NoKey as error:
        instead = f"F.col({error.column!r})" if error.column else f"({key.expression.text})"
        raise ConfigurationError(
            f"{at}: a key of type {key.type} cannot be kept ({error}). Its columns are of text, "
            "whole numbers, bytes, booleans, dates, timestamps or decimals of up to 18 digits, "
            f"like {instead}.cast('string')"
        ) from error
    columns = [column for column, _ in columns_of(serde)]
    if twice := in_another_case(columns):
        raise ConfigurationError(f"{at}: several columns are called {twice}: rename one of them")
    for column in columns:
        check_column(column)
    name = check_column(name or ("" if columns else "key"))
    own = frozenset(one.name for one in found if _is_own(one))
    return Key(key.expression, serde, name, own)


def _is_own(one: Resolved) -> bool:
    """Whether rows have a column of that name, and it is this one."""
    return one.expression.plain and one.expression.text in (one.name, quoted(one.name))


def _together(rows: DataFrame, found: Sequence[Resolved], at: str) -> Resolved:
    """Several columns as one struct."""
    for one in found:
        if not one.name.isidentifier():
            has = "a name that is no identifier" if one.expression.plain else "no name"
            raise ConfigurationError(
                f"{at}: {one.expression.text} has {has}, and columns of a key are called by one: "
                "write .alias('name')"
            )
    columns = [one.column.alias(one.name) for one in found]
    return resolved(rows, F.struct(*columns), at)
