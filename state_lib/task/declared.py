"""Which topology a task is opened with: the one that its newest driver declares."""

from __future__ import annotations

from state_lib.errors import NotFound, Unavailable
from state_lib.specs import Topology
from state_lib.task.held import Held


class Declared:
    """Of one task.

    Args:
        topology: that is known when the task is made.
        held: what the task holds; its locks guard the declaration too.

    Attributes:
        topology: of the open task, or that it is opened with next.
    """

    def __init__(self, topology: Topology, held: Held) -> None:
        self.topology = topology
        self._held = held

    def declare(self, topology: Topology) -> bool:
        """What the newest driver declares; counts at once for a task that is not open.

        One that cannot be opened with the stores of a newer job can go back to those of before.

        Returns:
            Whether it is to be opened with other stores than the last attempt.
        """
        with self._held.state_lock:
            changes = self._held.stores is None and self.is_other(topology)
            if changes:
                self.topology = topology
            return changes

    def is_other(self, topology: Topology) -> bool:
        """Whether an attempt with that topology opens other stores than are wanted by now."""
        return self.topology.stores != topology.stores

    def make_way(self, topology: Topology, epoch: int) -> bool:
        """Close a task whose stores are not those of a driver that may claim it.

        Returns:
            Whether it was closed, so that it has to be opened again.

        Raises:
            Superseded, TopicRecreated: the driver may not claim it.
            Unavailable: it is not open.
        """
        with self._held.commit_lock:
            stores = self._held.opened()
            self._held.judge_claim(topology, epoch)
            if stores.are_of(topology):
                return False
            self.topology = topology  # first: once it is closed, anybody may open it again
            self._held.close()
            return True

    def confirm(self, topology: Topology) -> None:
        """The claim goes on with this one; Unavailable if others were opened meanwhile."""
        if not self._held.opened().are_of(topology):
            name = self._held.name
            why = f"task {name} was opened with other stores meanwhile; try again"
            raise Unavailable(why, task=name)
        self.topology = topology


def check_partition(topology: Topology, partition: int) -> None:
    """Raise NotFound for a partition that the application does not have."""
    if not 0 <= partition < topology.partitions:
        raise NotFound(
            f"application {topology.app!r} has partitions 0 to {topology.partitions - 1}, "
            f"not {partition}",
            partition=partition,
        )
