"""A number for each partition of some topics: where to read next, or a greatest event time."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping
from typing import Any

Numbers = Mapping[tuple[str, int], int]
"""Numbers by topic and partition: `Positions`, or a plain dict."""
ByTopic = dict[str, dict[str, int]]


class Positions(Numbers):
    """Immutable numbers by topic and partition; equal to any mapping with the same items.

    As JSON they have the shape of Spark's own offsets, ``{topic: {"partition": number}}`` with
    partitions as text, so that one form serves markers, progress records and ``startingOffsets``.
    """

    __slots__ = ("_numbers",)

    def __init__(self, numbers: Numbers | None = None) -> None:
        self._numbers = dict(numbers or {})

    @classmethod
    def of(cls, data: Mapping[str, Mapping[str, int]]) -> Positions:
        """From JSON."""
        return cls(
            {(t, int(p)): number for t, parts in data.items() for p, number in parts.items()}
        )

    def to_json(self) -> ByTopic:
        """As JSON, sorted."""
        out: ByTopic = {}
        for (topic, partition), number in sorted(self._numbers.items()):
            out.setdefault(topic, {})[str(partition)] = number
        return out

    def greatest(self, other: Numbers) -> Positions:
        """The greater number of each partition that one of both has."""
        return Positions(self._numbers | {p: max(self.get(p, n), n) for p, n in other.items()})

    def keys(self) -> KeysView[tuple[str, int]]:
        """Partitions. Several times faster than what `Mapping` has."""
        return self._numbers.keys()

    def items(self) -> ItemsView[tuple[str, int], int]:
        """Partitions and their numbers."""
        return self._numbers.items()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Positions):
            return self._numbers == other._numbers
        return isinstance(other, Mapping) and self._numbers == dict(other)

    def __hash__(self) -> int:
        return hash(frozenset(self._numbers.items()))

    def __getitem__(self, partition: tuple[str, int]) -> int:
        return self._numbers[partition]

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def __repr__(self) -> str:
        return f"Positions.of({self.to_json()})"

    def __str__(self) -> str:
        return str(self.to_json())

    def __deepcopy__(self, memo: dict[int, Any]) -> Positions:
        return self
