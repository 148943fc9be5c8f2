"""What an audit found, as data, as a table, and as lines that a person can follow up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from state_lib.protocol.stored import to_stored

EXAMPLES = 10


@dataclass(frozen=True)
class Comparison:
    """Every entry of one store, output, or set of counts, against the recompute.

    Attributes:
        kind: ``store``, ``output``, ``dropped``, ``dead letters`` or ``totals``.
        name: of the store or topic; empty for the others.
        expected, actual: how many entries each side has.
        missing, unexpected, different: how many are only expected, only there, or not equal.
        doubled: entries or output records that occur again where they must not.
        examples: up to `EXAMPLES` of each.
        digest_expected, digest_actual: of a store's bytes, from two implementations; None if the
            recompute gives none.
    """

    kind: str
    name: str
    expected: int
    actual: int
    missing: int = 0
    unexpected: int = 0
    different: int = 0
    doubled: int = 0
    examples: tuple[str, ...] = ()
    digest_expected: str | None = None
    digest_actual: str | None = None

    @property
    def clean(self) -> bool:
        """Whether both sides are the same."""
        wrong = self.missing or self.unexpected or self.different or self.doubled
        digests = self.digest_expected is None or self.digest_expected == self.digest_actual
        return not wrong and digests


@dataclass(frozen=True)
class AuditReport:
    """The outcome of one audit.

    Attributes:
        app: the application.
        positions: at which all its tasks stood, ``{topic: {"partition": next offset}}``.
        stream_time_ms: the greatest of its tasks.
        records: source records that the recompute was made of.
        comparisons: one per store, output and count.
        notes: what was not compared, and why.
        seconds: wall time per phase.
    """

    app: str
    positions: Mapping[str, Mapping[str, int]]
    stream_time_ms: int
    records: int
    comparisons: tuple[Comparison, ...]
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        """Whether nothing differs."""
        return all(c.clean for c in self.comparisons)

    @property
    def counts(self) -> dict[str, int]:
        """Over all comparisons: entries that were compared, and those that are not as expected."""
        found = self.comparisons
        return {
            "compared": sum(c.expected for c in found),
            "missing": sum(c.missing for c in found),
            "unexpected": sum(c.unexpected for c in found),
            "different": sum(c.different for c in found),
            "doubled": sum(c.doubled for c in found),
        }

    @property
    def differences(self) -> tuple[str, ...]:
        """A line for each example of what differs, or for digests if nothing else does."""
        return tuple(
            f"{c.kind} {c.name}".strip() + f": {line}"
            for c in self.comparisons
            if not c.clean
            for line in c.examples or (f"digest {c.digest_actual}, not {c.digest_expected}",)
        )

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        body = to_stored(asdict(self)) | {"clean": self.clean, "counts": self.counts}
        body["differences"] = list(self.differences)
        body["comparisons"] = [asdict(c) | {"clean": c.clean} for c in self.comparisons]
        return body

    def render(self) -> RenderableType:
        """A table, the digests, and examples of what differs."""
        parts: list[RenderableType] = [self._table()]
        for c in self.comparisons:
            if c.digest_actual is not None:
                parts.append(Text(f"{c.name}: digest of the store      {c.digest_actual}"))
                expected = c.digest_expected or "(the recompute gives none)"
                parts.append(Text(f"{c.name}: digest of the recompute  {expected}"))
        for c in self.comparisons:
            parts += [Text(f"{c.kind} {c.name}: {line}", style="red") for line in c.examples]
        parts += [Text(note, style="yellow") for note in self.notes]
        spent = ", ".join(f"{phase} {s:.1f} s" for phase, s in self.seconds.items())
        verdict = "equal in every entry" if self.clean else "DIFFERENT"
        style = "bold green" if self.clean else "bold red"
        parts.append(Text(f"{self.app}: {verdict}, {self.records:,} records ({spent})", style))
        return Group(*parts)

    def print(self, console: Console | None = None) -> None:
        """Print `render`."""
        (console or Console(soft_wrap=True)).print(self.render())

    def _table(self) -> Table:
        table = Table(box=None, padding=(0, 2, 0, 0))
        table.add_column("", overflow="fold")
        for column in ("expected", "actual", "missing", "extra", "wrong", "twice"):
            table.add_column(column, justify="right", no_wrap=True)
        table.add_column("", no_wrap=True)
        for c in self.comparisons:
            numbers = (c.expected, c.actual, c.missing, c.unexpected, c.different, c.doubled)
            verdict = "[green]equal" if c.clean else "[red]DIFFERS"
            table.add_row(f"{c.kind} {c.name}".strip(), *(f"{n:,}" for n in numbers), verdict)
        return table
