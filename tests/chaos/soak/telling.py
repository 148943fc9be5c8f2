"""What a person reads: a few lines every half minute, and tables at the end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from state_lib.client.airflow import Airflow
from state_lib.errors import HoldfastError
from tests.chaos.soak.helpers import Repeated
from tests.chaos.soak.killer import Killer
from tests.chaos.soak.ledger import Ledger
from tests.chaos.soak.lives import Row
from tests.chaos.soak.memory import Memory
from tests.chaos.soak.names import APP
from tests.chaos.soak.scene import Scene

EVERY_S = 30.0


def runs_by_state(airflow: Airflow) -> dict[str, Counter[str]]:
    """How many runs of each DAG are in each state."""
    found: dict[str, Counter[str]] = {}
    for run in airflow._all("/dags/~/dagRuns", "dag_runs"):
        name = str(run["dag_id"]).removeprefix(f"{APP}_")
        found.setdefault(name, Counter())[str(run["state"])] += 1
    return dict(sorted(found.items()))


class Telling:
    """Prints how it goes; asks Airflow by a client of its own, which does not wait."""

    def __init__(
        self, scene: Scene, killer: Killer, ledger: Ledger, memory: Memory, airflow: Airflow
    ) -> None:
        self._scene, self._killer, self._ledger = scene, killer, ledger
        self._memory, self._airflow = memory, airflow
        self._began = time.monotonic()

    def repeated(self) -> Repeated:
        """Every half minute."""
        return Repeated(EVERY_S, self.tell)

    def tell(self) -> None:
        """Print how it stands."""
        say(f"[{clock(time.monotonic() - self._began)}] {len(self._scene.lines)} rounds")
        say(f"   killed   {_counts(self._killer.killed) or 'nobody'}")
        say(f"   lost     {self._losses()}")
        say(f"   tasks    {self._scene.states()}")
        try:
            runs = {name: _counts(n) for name, n in runs_by_state(self._airflow).items()}
            say(f"   runs     {'; '.join(f'{name}: {n}' for name, n in runs.items())}")
        except HoldfastError as error:
            say(f"   runs     {error.message[:100]}")
        now = sorted(self._memory.now().items())
        say(f"   MiB      {', '.join(f'{name} {mib:,.0f}' for name, mib in now)}")

    def _losses(self) -> str:
        losses, now = self._ledger.losses, time.time()
        waits = [f"{one.task} {one.damage} {now - one.at:.0f} s" for one in self._ledger.pending]
        back = f"{len(losses)}, {len(losses) - len(waits)} restored and reported"
        return "; waited for: ".join([back, *([", ".join(waits)] if waits else [])])


def say(line: str) -> None:
    """Print at once."""
    print(line, flush=True)  # noqa: T201 - it is run for what it says


def clock(seconds: float) -> str:
    """As minutes and seconds."""
    return f"{int(seconds) // 60:2d}:{int(seconds) % 60:02d}"


def memory_table(rows: Sequence[Row]) -> list[str]:
    """Lines."""
    lines = [
        f"{'process':34} {'lives':>5} {'peak MiB':>9} {'last MiB':>9} {'MiB/min':>8} {'min':>5}"
    ]
    for row in rows:
        slope = "" if row.slope is None else f"{row.slope:+.2f}"
        lines.append(
            f"{row.name:34} {row.lives:5d} {row.peak:9,.0f} {row.last:9,.0f} {slope:>8} "
            f"{row.minutes:5.1f}  {row.verdict}"
        )
    return lines


def loss_table(ledger: Ledger) -> list[str]:
    """Lines."""
    lines = [f"{'task':10} {'damage':8} {'host':8} {'back s':>7} {'sensed s':>8} {'built':>5}"]
    for one in ledger.losses:
        back = "never" if one.reported_s is None else f"{one.reported_s:.0f}"
        sensed = "" if one.seconds is None else f"{one.seconds:.0f}"
        killed = f"; killed meanwhile: {', '.join(one.killed)}" if one.killed else ""
        lines.append(
            f"{one.task:10} {one.damage:8} {one.host:8} {back:>7} {sensed:>8} {one.built:5d}  "
            f"from {one.source}{killed}"
        )
    return lines


def _counts(counted: Counter[str]) -> str:
    return ", ".join(f"{name} {n}" for name, n in sorted(counted.items()))
