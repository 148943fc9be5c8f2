"""What a Spark task reads: one task of an application, all of it at one marker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeAlias

from pyspark.sql.datasource import InputPartition

from state_lib.protocol.marker import Marker
from state_lib.stores.columns import Columns

Keys: TypeAlias = tuple[bytes, ...] | None
"""Serialized ones, of windows the inner ones; None for all."""


@dataclass(frozen=True)
class Cut:
    """A store of a task at a marker, while it is held open.

    ``snapshot``: its id, None of a live store. ``parts``: the entries, as stored; not expired.
    """

    marker: Marker
    snapshot: str | None
    parts: Iterator[Columns]


@dataclass(frozen=True)
class TaskPartition(InputPartition, ABC):
    """Travels to an executor, without any secret.

    Attributes:
        app, task, store, keys: what to read.
    """

    app: str
    task: int
    store: str
    keys: Keys

    @property
    def name(self) -> str:
        """``<app>/<task>``."""
        return f"{self.app}/{self.task}"

    @abstractmethod
    def opened(self) -> AbstractContextManager[Cut]:
        """Pin a cut, and read from it within the context."""
