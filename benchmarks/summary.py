"""Medians, spreads and ratios of several rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.measure import PEER, Measurement

Rounds = Sequence[Mapping[str, Measurement]]


@dataclass(frozen=True)
class Row:
    """One contender over all rounds.

    Attributes:
        contender: its name.
        rounds: how many.
        median: of the values.
        least, most: of the values: the spread.
        ratio: how many times better than `PEER` in the same round, the median of the rounds; None
            without a peer, 1 for the peer itself.
        ratios: least and most of them.
        cpu_s, peak_mib: medians.
        facts: medians, by name.
    """

    contender: str
    rounds: int
    median: float
    least: float
    most: float
    ratio: float | None
    ratios: tuple[float, float] | None
    cpu_s: float
    peak_mib: int
    facts: Mapping[str, float]


def summarize(rounds: Rounds, *, more_is_better: bool) -> list[Row]:
    """One row per contender, in the order of the first round.

    Ratios are taken within a round, so that a machine that slows down from one round to the next
    does not enter them.
    """
    rows = []
    for contender in rounds[0]:
        runs = [r[contender] for r in rounds]
        values = [run.value for run in runs]
        ratios = _ratios(rounds, contender, more_is_better=more_is_better)
        facts = [name for name in runs[0].facts if all(name in run.facts for run in runs)]
        row = Row(
            contender=contender,
            rounds=len(runs),
            median=median(values),
            least=min(values),
            most=max(values),
            ratio=median(ratios) if ratios else None,
            ratios=(min(ratios), max(ratios)) if ratios else None,
            cpu_s=median(run.cpu_s for run in runs),
            peak_mib=round(median(run.peak_mib for run in runs)),
            facts={name: median(run.facts[name] for run in runs) for name in facts},
        )
        rows.append(row)
    return rows


def _ratios(rounds: Rounds, contender: str, *, more_is_better: bool) -> list[float]:
    pairs = [(r[contender].value, r[PEER].value) for r in rounds if PEER in r]
    return [ours / peer if more_is_better else peer / ours for ours, peer in pairs]
