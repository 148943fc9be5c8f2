"""Schemas of Avro without a registry, and records that are read by them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from state_lib.executor.avro.decode import decoded
from state_lib.executor.avro.schema import pinned

Found = list[tuple[Any, str | None]]


@dataclass(frozen=True)
class Known:
    """Schemas by id; equal to no other, so that nothing is remembered of another test."""

    texts: Mapping[int, tuple[str, ...]]
    url: str = "test:"
    asked: list[int] = field(default_factory=list)

    def of(self, number: int) -> tuple[str, ...] | None:
        self.asked.append(number)
        return self.texts.get(number)

    def knows_any(self, topics: Sequence[str]) -> bool:
        del topics
        return bool(self.texts)

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


def read(reader: Any, known: Known, *raw: bytes | None) -> Found:
    """Rows, and why there is none, of values that are decoded together."""
    text = pinned([json.dumps(reader)], "it")
    found: Found = []
    for made in decoded(iter([pa.array(raw, pa.binary())]), text, known):
        found += [(one["row"], one["why"]) for one in made.to_pylist()]
    return found
