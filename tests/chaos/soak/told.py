"""What notifiers were told, by the file that the soak's own one writes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path


class Told:
    """A line for each incident's beginning (``alarm``) and end (``recovery``)."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def lines(self) -> list[dict[str, str]]:
        """In order."""
        text = self._file.read_text() if self._file.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    def of(self, condition: str) -> list[tuple[str, str]]:
        """Kind and subject of all that was told of it, in order; several subjects one by one."""
        return [
            (one["kind"], subject)
            for one in self.lines()
            if one["condition"] == condition
            for subject in one["subject"].split(", ")
        ]

    def counts(self) -> Counter[str]:
        """How often each kind was told of each condition."""
        return Counter(f"{one['kind']} {one['condition']}" for one in self.lines())
