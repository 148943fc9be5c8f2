"""The resources of an open task: its writer, its stores, and their marker."""

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
    """The resources of one task; while it is closed, only its last marker.

    Args:
        name: ``<app>/<partition>``.

    Attributes:
        commit_lock: makes commits serial; taken before ``state_lock``.
        state_lock: guards stores and marker together; held only briefly, as reads wait for it.
        offsets: changelog topic → its id, and the end offset that the stores include.
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
        """Take over the resources of a task that was opened."""
        checkpoint = opened.stores.checkpoint()
        offsets = {} if checkpoint is None else checkpoint.offsets
        with self.commit_lock, self.state_lock:
            self.writer, self.stores = opened.writer, opened.stores
            self.marker = opened.marker
            self.offsets = {topic: list(at) for topic, at in offsets.items()}

    def close(self) -> None:
        """Close stores and writer. Nothing is lost: unflushed changes are replayed later."""
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
        """The checkpoint that the stores are at between two commits; None if it is closed."""
        with self.commit_lock:
            return None if self.stores is None else self.stores.checkpoint()

    def judge_claim(self, topology: Topology, epoch: int) -> Verdict:
        """As `state_lib.task.claiming.judge_claim`, for a claim in the topology's topic.

        Raises:
            Realign: a restore to the past came after the claim, and no newer driver. Others as
                there.
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
        """Apply a committed transaction to the stores: if that fails, the task is closed."""
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
