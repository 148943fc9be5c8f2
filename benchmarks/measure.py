"""What a benchmark is, and what one run of a contender gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from benchmarks.world import World

HOLDFAST = "holdfast"
PEER = "kafka streams"
"""The contender that ratios compare with: Kafka Streams with its own defaults."""
ALIKE: Mapping[str, str] = MappingProxyType({})
"""Nobody promises what another does not."""


@dataclass(frozen=True)
class Measurement:
    """One run of one contender.

    Attributes:
        value: in the benchmark's unit.
        cpu_s: CPU seconds of the contender's processes, children included, broker apart.
        peak_mib: most resident memory of those processes together, MiB.
        same: what must be equal for all contenders of a round, such as the store's digest. A
            contender may know fewer of these facts than another.
        facts: numbers worth knowing; the report shows their medians.
    """

    value: float
    cpu_s: float
    peak_mib: int
    same: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, float] = field(default_factory=dict)


Contender = Callable[["World"], Measurement]


class Benchmark(Protocol):
    """One question, asked of several contenders.

    Attributes:
        name: for ``--only`` and for the markers in README.md.
        title: one line that says exactly what is timed, from when to when.
        unit: of `Measurement.value`.
        more_is_better: a rate, not a time.
        guarantees: what a contender promises about its results, by its name; where they differ.
    """

    name: str
    title: str
    unit: str
    more_is_better: bool
    guarantees: Mapping[str, str]

    def prepare(self, world: World) -> None:
        """Make what all rounds share; not timed."""
        ...

    def contenders(self) -> Mapping[str, Contender]:
        """By name, in the order of the first round."""
        ...


class Differ(Exception):
    """Contenders came to different results: no time is worth anything then."""


def check_same(runs: Mapping[str, Measurement]) -> None:
    """Raise Differ unless all that several contenders know is equal."""
    known: dict[str, tuple[str, Any]] = {}
    for contender, run in runs.items():
        for fact, seen in run.same.items():
            first, expected = known.setdefault(fact, (contender, seen))
            if seen != expected:
                raise Differ(f"{fact}: {first} has {expected}, {contender} has {seen}")
