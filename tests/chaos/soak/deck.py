"""What happens in a round: what is lost, and who is killed meanwhile."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from state_lib.stack.airflow import API_SERVER
from state_lib.stack.airflow.programs import COMPONENTS

DRIVER, JVM, HOST, BROKER, AIRFLOW = "the driver", "its JVM", "a host", "kafka", "all of Airflow"
SCHEDULER, PROCESSOR, TRIGGERER = COMPONENTS
SERVICES = (API_SERVER, *COMPONENTS)
DELETED, CORRUPT = "deleted", "corrupt"
"""Of a store: its directory, or an SST file in it."""


@dataclass(frozen=True)
class Round:
    """One round.

    Attributes:
        victims: who gets SIGKILL, in one go.
        damage: what a store suffers before that, `DELETED` or `CORRUPT`; empty: none does.
        timed: the promises of `bounds` are asserted; DAGs that run now and then are at rest.
        held: nobody starts the host again before its alarm is told; its recovery is waited for.
    """

    victims: tuple[str, ...] = ()
    damage: str = ""
    timed: bool = False
    held: bool = False

    @property
    def name(self) -> str:
        """For people."""
        lost = [f"a store {self.damage}"] if self.damage else []
        how = ", timed" if self.timed else ", held down" if self.held else ""
        return " and ".join([*lost, *self.victims]) + how

    @property
    def of_airflow(self) -> bool:
        """Whether one of Airflow's processes is killed."""
        return bool({*SERVICES, AIRFLOW} & set(self.victims))

    @property
    def of_driver(self) -> bool:
        """Whether the driver is."""
        return bool({DRIVER, JVM} & set(self.victims))


FIRST = (
    Round((DRIVER,), timed=True),
    Round((DRIVER, AIRFLOW), timed=True),
    Round((HOST,), held=True),
    Round((BROKER,)),
    Round((AIRFLOW,)),
    Round((SCHEDULER,)),
    Round((API_SERVER,)),
    Round((PROCESSOR,)),
    Round((TRIGGERER,), DELETED),
    Round(damage=DELETED),
    Round(damage=CORRUPT),
)
"""Each of them is played at least once: with them, everybody is killed."""
MORE = (
    Round((DRIVER,)),
    Round((JVM,)),
    Round((HOST,)),
    Round((TRIGGERER,)),
    Round((DRIVER, TRIGGERER)),
    Round((DRIVER, SCHEDULER)),
    Round((DRIVER, AIRFLOW)),
    Round((HOST, DRIVER)),
    Round((HOST,), DELETED),
    Round((SCHEDULER,), DELETED),
    Round((DRIVER,), DELETED),
    Round((BROKER,), DELETED),
    Round((AIRFLOW,), CORRUPT),
    Round((HOST,), CORRUPT),
)


def deck(rng: random.Random) -> Iterator[Round]:
    """Rounds without end: those of `FIRST`, then the others, then all again, each time shuffled."""
    yield from rng.sample(FIRST, len(FIRST))
    yield from rng.sample(MORE, len(MORE))
    while True:
        yield from rng.sample((*FIRST, *MORE), len(FIRST) + len(MORE))
