"""The soak from its first commit to its last word."""

from __future__ import annotations

import json
import random
import time
from contextlib import nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from state_lib.client.airflow import Airflow, Run
from state_lib.errors import HoldfastError
from tests.chaos.cluster import Cluster
from tests.chaos.soak.deck import FIRST, deck
from tests.chaos.soak.held import Held
from tests.chaos.soak.killer import Killer
from tests.chaos.soak.ledger import Ledger
from tests.chaos.soak.memory import Memory
from tests.chaos.soak.names import ALL, STREAM
from tests.chaos.soak.rest import at_rest
from tests.chaos.soak.rounds import Rounds
from tests.chaos.soak.scene import Scene
from tests.chaos.soak.telling import loss_table, memory_table, runs_by_state, say
from tests.chaos.soak.told import Told
from tests.support.drivers import Census
from tests.support.waiting import until

PATIENCE_S = 240.0
"""For DAGs to be parsed, and for the first commit."""
QUIET = 1 / 3
"""Of the time nothing is killed at the end: memory is judged by that part."""
PAUSE_S = (2.0, 10.0)
"""Between two rounds, at random."""


class Soak:
    """One application under all of its DAGs.

    Args:
        cluster: that runs.
        airflow: of it; patient.
        census: counts drivers.
        seed: of what is chosen at random.
        told: what notifiers were told.
    """

    def __init__(
        self, cluster: Cluster, airflow: Airflow, census: Census, seed: int, told: Told
    ) -> None:
        self._airflow, self._seed = airflow, seed
        rng = self._rng = random.Random(seed)  # noqa: S311 - a repeatable choice
        self.scene, self.memory = Scene(cluster, census), Memory(cluster)
        self.ledger = Ledger(cluster, airflow)
        self.killer = Killer(self.scene, self.ledger, rng)
        held = Held(self.scene, self.killer, told, airflow)
        self._rounds = Rounds(self.scene, self.killer, self.ledger, held, rng)
        self._quiet_since = time.time()

    def start(self) -> Run:
        """Unpause every DAG, start the stream, wait for its first commit in all tasks."""
        until(self._parsed, PATIENCE_S, f"all of {ALL} parsed")
        for dag in ALL:
            self._airflow.unpause(dag)
        run = self._airflow.trigger(STREAM)
        self.scene.until("committing", lambda: self.scene.committing(-1), PATIENCE_S)
        self.scene.until("all tasks open", self.scene.whole, PATIENCE_S)
        return run

    def kill(self, seconds: float) -> None:
        """Rounds: those that come first, and more until the time is over."""
        end = time.monotonic() + seconds
        for number, one in enumerate(deck(self._rng)):
            if number >= len(FIRST) and time.monotonic() > end:
                return
            say(f"round {number + 1}: {one.name}")
            with at_rest(self.scene, self._airflow) if one.timed else nullcontext():
                self._rounds.play(one)
            say(f"   {self.scene.lines[-1]}")
            time.sleep(self._rng.uniform(*PAUSE_S))

    def watch(self, seconds: float) -> None:
        """Kill nobody: the same driver goes on."""
        say(f"{seconds:.0f} s without kills")
        self._quiet_since, drivers = time.time(), self.scene.drivers()
        time.sleep(seconds)
        assert self.scene.drivers() == drivers
        assert self.scene.whole(), self.scene.states()

    def judge_memory(self) -> None:
        """No process grows."""
        bad = [row for row in self.memory.rows(self._quiet_since) if row.bad]
        assert not bad, "\n".join(memory_table(bad))

    def tell(self, file: Path, found: dict[str, Any]) -> None:
        """Print all of it, and write it down, also of a soak that failed."""
        rows, runs = self.memory.rows(self._quiet_since), dict[str, Any]()
        with suppress(HoldfastError):
            runs |= runs_by_state(self._airflow)
        sections = {
            "rounds": self.scene.lines,
            "losses": loss_table(self.ledger),
            "memory": memory_table(rows),
            "runs": [f"{name:12} {dict(n)}" for name, n in runs.items()],
            "found": [f"{name:12} {value}" for name, value in found.items()],
        }
        for name, lines in sections.items():
            say("\n".join([f"\n--- {name}", *lines]))
        told = {
            "seed": self._seed,
            "rounds": self.scene.lines,
            "killed": self.killer.killed,
            "losses": [asdict(one) for one in self.ledger.losses],
            "runs": runs,
            "memory": [asdict(row) for row in rows],
            "samples": [asdict(life) for life in self.memory.lives.values()],
            "found": found,
        }
        file.write_text(json.dumps(told, indent=1))
        say(f"\nseed {self._seed}; all of it is in {file}")

    def close(self) -> None:
        """Free Kafka clients."""
        self.scene.close()

    def _parsed(self) -> bool:
        errors = self._airflow.import_errors()
        assert not errors, errors
        return set(ALL) <= self._airflow.dags().keys()
