"""Whether tasks that were restored take part in the stream again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from state_lib.changelog.claims import newest_claim
from state_lib.client.http import HostHttp, encoded
from state_lib.drivers.members import living_drivers
from state_lib.errors import Unavailable
from state_lib.kafka import Kafka

Place = tuple[int, int]
"""Epoch and number of a commit."""


@dataclass(frozen=True)
class Resumed:
    """What was seen.

    Attributes:
        drivers: that live.
        waiting: tasks that have not committed since, and stand behind others, or wait for the
            driver's claim; with the reason.
    """

    drivers: tuple[str, ...]
    waiting: Mapping[str, str]

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to wait for."""
        return not self.drivers or not self.waiting

    def told(self, app: str) -> str:
        """In words."""
        if not self.drivers:
            return f"no driver of {app} runs: the stream reads on from here once one is started"
        if self.waiting:
            return "; ".join(f"{task} {why}" for task, why in sorted(self.waiting.items()))
        return f"driver {self.drivers[-1]} of {app} goes on with all of them"


def look(
    hosts: Sequence[HostHttp], kafka: Kafka, app: str, restored: Mapping[str, Place]
) -> Resumed:
    """See how the tasks stand.

    Args:
        hosts: all of them; one that does not answer has no tasks.
        kafka: connection.
        app: application.
        restored: where each task stood when it was restored, by ``<app>/<partition>``.

    Raises:
        Unavailable: Kafka is away.
    """
    drivers = living_drivers(kafka, app)
    if not drivers:
        return Resumed((), {})
    claim = newest_claim(kafka, app)
    epoch = -1 if claim is None else claim.epoch
    places = _places(hosts, app)
    newest = max(places.values(), default=(-1, -1))
    waiting = {}
    for task, before in restored.items():
        at = places.get(task)
        if at is None:
            waiting[task] = "is not open"
        elif at[0] < epoch:
            waiting[task] = f"waits for the driver of epoch {epoch} to claim it"
        elif at <= before and at < newest:
            waiting[task] = f"stands at commit {at[0]}/{at[1]}, others at {newest[0]}/{newest[1]}"
    return Resumed(drivers, waiting)


def _places(hosts: Sequence[HostHttp], app: str) -> dict[str, Place]:
    """Where the tasks stand that are open."""
    found = {}
    for task in _tasks(hosts, app):
        at = task["position"]
        if at is not None:
            number = at.get("batch_number", at.get("n"))  # "n" from older hosts
            found[task["task"]] = (at["epoch"], number)
    return found


def _tasks(hosts: Sequence[HostHttp], app: str) -> Sequence[dict]:  # type: ignore[type-arg]
    tasks = []
    for host in hosts:
        try:
            tasks += host.get(f"/v1/apps/{encoded(app)}/stores", patient=False)["tasks"]
        except Unavailable:  # its tasks count as missing
            continue
    return tasks
