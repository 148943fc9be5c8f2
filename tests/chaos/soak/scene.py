"""What is seen of the stack: the driver, the tasks on their hosts, Airflow's health."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

from state_lib.client.http import HostHttp
from state_lib.drivers.look import Looker
from state_lib.drivers.sight import Sight
from state_lib.errors import HoldfastError
from tests.chaos.check import TASKS
from tests.chaos.cluster import Cluster
from tests.chaos.soak.deck import SERVICES
from tests.chaos.soak.names import APP
from tests.support.drivers import Census
from tests.support.waiting import SLOWNESS

ANSWER_S = 3.0


class Scene:
    """Looks, and waits. `sight` and what needs it is for one thread.

    Attributes:
        lines: what has happened so far, a line for each round.
    """

    def __init__(self, cluster: Cluster, census: Census) -> None:
        self.cluster, self.census = cluster, census
        self._looker = Looker(cluster.settings, APP)
        self.lines: list[str] = []

    def close(self) -> None:
        """Free Kafka clients."""
        self._looker.close()

    def sight(self) -> Sight:
        """Of the application, through Kafka."""
        return self._looker.look()

    def states(self) -> dict[int, str]:
        """Of the tasks by partition, as hosts say; tasks of hosts that are away are absent."""
        settings = self.cluster.settings
        found: dict[int, str] = {}
        for address in settings.host_addresses:
            with closing(HostHttp(address, settings.read_token(), ANSWER_S)) as http:
                try:
                    tasks = http.get(f"/v1/apps/{APP}/stores", patient=False)["tasks"]
                except HoldfastError:
                    continue
            found |= {int(one["partition"]): str(one["state"]) for one in tasks}
        return found

    def whole(self) -> bool:
        """Whether every task is open."""
        return self.states() == dict.fromkeys(range(TASKS), "open")

    def healthy(self) -> bool:
        """Whether Airflow's services are."""
        status = self.cluster.stack.status()
        return all(status[name].health == "healthy" for name in SERVICES)

    def drivers(self) -> set[str]:
        """Ids of those that live, as the machine shows them."""
        return set(self.census.living())

    def committing(self, after: int) -> bool:
        """Whether a driver with a later claim than that has committed."""
        now = self.sight()
        return now.away is None and now.epoch > after and now.batch_number > 0

    def goal(self) -> int | None:
        """Source records that there are; None while Kafka is away."""
        now = self.sight()
        return now.total if now.away is None and now.total else None

    def caught_up(self, goal: int) -> bool:
        """Whether all tasks have processed so many."""
        now = self.sight()
        return now.away is None and not now.parked and now.batch_number > 0 and now.done >= goal

    def until(self, what: str, true: Callable[[], object], within_s: float) -> float:
        """Wait until it is so; returns the seconds that it took."""
        began = time.monotonic()
        while not true():
            if time.monotonic() - began > within_s * SLOWNESS:
                said = "\n".join(self.lines)
                raise AssertionError(
                    f"not {what} after {within_s * SLOWNESS:.0f} s; tasks: {self.states()}; "
                    f"rounds before:\n{said}"
                )
            time.sleep(0.3)
        return time.monotonic() - began
