"""The topology that a task is opened with: the newest driver's."""

from __future__ import annotations

from state_lib.errors import NotFound, Unavailable
from state_lib.specs import Topology
from state_lib.task.held import Held


class Declared:
    """The declared topology of one task.

    Args:
        topology: the one known when the task object is made.
        held: the task's resources, whose locks guard the topology too.

    Attributes:
        topology: of the open task, or for its next opening.
    """

    def __init__(self, topology: Topology, held: Held) -> None:
        self.topology = topology
        self._held = held

    def declare(self, topology: Topology) -> bool:
        """Set the newest driver's topology; it takes effect at once if the task is not open.

        So a task that cannot be opened with the stores of a newer job can go back to the old ones.

        Returns:
            Whether the task is to be opened with other stores than in the last attempt.
        """
        with self._held.state_lock:
            changes = self._held.stores is None and self.is_other(topology)
            if changes:
                self.topology = topology
            return changes

    def is_other(self, topology: Topology) -> bool:
        """Whether a topology has other stores than the one declared now."""
        return self.topology.stores != topology.stores

    def make_way(self, topology: Topology, epoch: int) -> bool:
        """Close a task that a driver with other stores may claim.

        Returns:
            Whether it was closed, and has to be opened again.

        Raises:
            Superseded, TopicRecreated: the driver may not claim it.
            Unavailable: it is not open.
        """
        with self._held.commit_lock:
            stores = self._held.opened()
            self._held.judge_claim(topology, epoch)
            if stores.are_of(topology):
                return False
            self.topology = topology  # before closing, as any thread may open it again then
            self._held.close()
            return True

    def confirm(self, topology: Topology) -> None:
        """Check that the claim's stores are open; Unavailable if others were opened meanwhile."""
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
