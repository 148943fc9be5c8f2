"""What an open task holds: its writer, its stores, and the marker that they stand at."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from state_lib.changelog.log import Writer
from state_lib.errors import Unavailable
from state_lib.failpoints import failpoint
from state_lib.protocol.marker import Marker, Verdict, overtaken
from state_lib.specs import Topology
from state_lib.stores.task_stores import Checkpoint, StoreChanges, TaskStores
from state_lib.task.claiming import judge_claim
from state_lib.task.opening import OpenTask


class Held:
    """Of one task; nothing but the last marker while it is closed.

    Args:
        name: ``<app>/<partition>``.

    Attributes:
        commit_lock: commits are serial; taken before the other.
        state_lock: stores and marker move together; held shortly, for reads wait for it.
        offsets: changelog topic → its id, and the end of what is in the stores.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.commit_lock = threading.RLock()
        self.state_lock = threading.RLock()
        self.writer: Writer | None = None
        self.stores: TaskStores | None = None
        self.marker = Marker()
        self.offsets: dict[str, list] = {}  # type: ignore[type-arg]

    def install(self, opened: OpenTask) -> None:
        """From now on it is open."""
        checkpoint = opened.stores.checkpoint()
        offsets = {} if checkpoint is None else checkpoint.offsets
        with self.commit_lock, self.state_lock:
            self.writer, self.stores = opened.writer, opened.stores
            self.marker = opened.marker
            self.offsets = {topic: list(at) for topic, at in offsets.items()}

    def close(self) -> None:
        """Close stores and writer. Nothing is lost: what was not flushed is replayed."""
        with self.commit_lock, self.state_lock:
            stores, writer = self.stores, self.writer
            self.stores = self.writer = None
            if stores is not None:
                stores.close()
            if writer is not None:
                writer.close()

    def opened(self) -> TaskStores:
        """The stores; Unavailable if it is closed."""
        if self.stores is None:
            raise Unavailable(
                f"task {self.name} is not open yet (it is opening or restoring); try again",
                task=self.name,
            )
        return self.stores

    def opened_writer(self) -> Writer:
        """The writer; Unavailable if it is closed."""
        if self.writer is None:
            raise Unavailable(f"task {self.name} has no writer; try again", task=self.name)
        return self.writer

    def standing(self) -> Checkpoint | None:
        """Where its stores stand between two commits; None if it is closed."""
        with self.commit_lock:
            return None if self.stores is None else self.stores.checkpoint()

    def judge_claim(self, topology: Topology, epoch: int) -> Verdict:
        """As `state_lib.task.claiming`, of a claim in the topic that a topology comes from.

        Raises:
            Realign: besides; a restore to the past came after the claim, and no other driver.
        """
        marker, topic_id = self.marker, topology.extra.get("topic_id", "")
        same_topic = topic_id in ("", marker.claimed_in)
        if same_topic and marker.claim <= epoch < marker.epoch:
            raise overtaken(marker, epoch, {"epoch": epoch, "current": marker.epoch})
        return judge_claim(self.name, marker, epoch, topic_id)

    @contextlib.contextmanager
    def view(self) -> Iterator[tuple[Marker, TaskStores]]:
        """See `StateTask.view`."""
        with self.state_lock:
            yield self.marker, self.opened()

    def apply(self, changes: StoreChanges, marker: Marker) -> None:
        """Step 3. The transaction stands: a failure here closes the task, replay brings it back."""
        try:
            failpoint("commit.after_kafka")
            for topic, (end, _count) in marker.cut.items():
                self.offsets[topic] = [self.offsets[topic][0], end]
            with self.state_lock:
                stores = self.opened()
                stores.write(changes, Checkpoint(marker, self.offsets, stores.layouts))
                self.marker = marker
            failpoint("commit.after_rocksdb")
        except BaseException:
            self.close()
            raise
