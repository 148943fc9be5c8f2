"""One exchange of one task and batch, whatever carries it: Flight, or a call in the process."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from state_lib.changelog.topics import dead_letter_queue
from state_lib.changelog.writer import Records
from state_lib.errors import Moved
from state_lib.host.letters import dead_letters
from state_lib.protocol.marker import CommitHeader, Marker
from state_lib.stores.pages import Page
from state_lib.task import Batch, Puts, StateTask


def is_done(marker: Marker, epoch: int, batch_number: int) -> bool:
    """Whether a task has committed a batch of an epoch already."""
    return marker.epoch == epoch and batch_number <= marker.batch_number


class TaskExchange:
    """What was read and sent so far; one that ends before its commit changes nothing."""

    def __init__(self, task: StateTask) -> None:
        self._task = task
        self._read_at: tuple[int, int] | None = None
        self._puts: dict[str, Puts] = {}
        self._outputs: list[Records] = []

    def get(self, store: str, keys: pa.BinaryArray) -> pa.BinaryArray:
        """Stored values of composite keys; null where absent or expired.

        Raises:
            Moved: the task has committed since the first values of this exchange were read.
        """
        marker, values = self._task.get_many(store, keys.to_pylist())
        self._pin(marker)
        return pa.array(values, pa.binary())

    def page(self, store: str, lower: bytes | None, upper: bytes | None, rows: int) -> Page:
        """The first entries with ``lower <= key < upper``, as `state_lib.stores.pages.page_of`.

        Raises:
            Moved: as `get`.
        """
        marker, page = self._task.page(store, lower, upper, rows)
        self._pin(marker)
        return page

    def _pin(self, marker: Marker) -> None:
        """All that is read is of one commit."""
        at = (marker.epoch, marker.batch_number)
        self._read_at = self._read_at or at
        if at != self._read_at:
            raise Moved(
                f"the marker moved from {self._read_at} to {at} within this exchange: read again",
                read_at=self._read_at,
                marker=at,
            )

    def put(
        self, store: str, keys: pa.BinaryArray, values: pa.BinaryArray, timestamps: pa.Int64Array
    ) -> None:
        """Changes of a store; a null value deletes."""
        k, v, t = keys.to_pylist(), values.to_pylist(), timestamps.to_pylist()
        before = self._puts.get(store)
        if before is not None:
            k, v = [*before.keys, *k], [*before.values, *v]
            t = [*before.timestamps, *t]
        self._puts[store] = Puts(k, v, t)

    def output(
        self, topic: str, keys: pa.BinaryArray, values: pa.BinaryArray, timestamps: pa.Int64Array
    ) -> None:
        """Records for an output topic, in the same transaction."""
        columns = keys.to_pylist(), values.to_pylist(), timestamps.to_pylist()
        self._outputs.append(Records(topic, *columns))

    def dead_letters(self, letters: pa.BinaryArray) -> None:
        """Records that could not be used, as `state_lib.host.letters` reads them."""
        topic = dead_letter_queue(self._task.topology.app)
        self._outputs.append(dead_letters(topic, letters, self._task.size_limit(topic)))

    def commit(self, header: CommitHeader) -> Marker:
        """Commit what was sent; raises as `StateTask.commit`."""
        header = replace(header, read_at=self._read_at)
        return self._task.commit(Batch(header, self._puts, self._outputs))
