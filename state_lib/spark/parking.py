"""Tasks that are left out while they are away, and brought to where the others stand.

A task whose host is down, or restores it, would hold up all others. It is parked instead: batches
go on without its rows, and its marker stays. Once it can be claimed again it repeats, alone, the
batches that it missed, between those of the stream. (shared/DESIGN.md, "Parking"; docs/adr/0020)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import structlog

from state_lib.changelog.progress import Recorded, effective
from state_lib.errors import ConfigurationError, HoldfastError, Realign, Unavailable
from state_lib.kafka import Kafka, TopicFacts
from state_lib.marker import RESTORING, Marker, flat, nested
from state_lib.spark.align import Read, repeat
from state_lib.spark.batches import Batches, Positions
from state_lib.spark.versions import Chain, behind
from state_lib.specs import Topology
from state_lib.task.opening import last_marker

log = structlog.get_logger(__name__)
LOOK_S = 1.0


@dataclass
class _Returning:
    """A task that could be claimed: where it stands, and what it may have missed."""

    marker: Marker
    chain: Chain
    at: Positions


class LeftOut:
    """Tasks that a driver begins without, because they could not be taken for a while.

    Only such as know where the stream is: what they have next is on record then. One that is
    restored to the past is waited for: where its outputs stand is known at its end.

    Args:
        kafka: connection.
        topology: of the application.
        sources: facts of its source topics.
        after_s: how long they are waited for, from now on.

    Attributes:
        parked: why each of them is away.
    """

    def __init__(
        self, kafka: Kafka, topology: Topology, sources: Mapping[str, TopicFacts], after_s: float
    ) -> None:
        self._kafka, self._app, self._after_s = kafka, topology.app, after_s
        self._wanted = {(t, p) for t, facts in sources.items() for p in range(facts.partitions)}
        self._since = time.monotonic()
        self.parked: dict[int, str] = {}

    def park(self, away: Mapping[int, Unavailable]) -> dict[int, Marker]:
        """The markers of those tasks that are left out from now on, if it is time."""
        if time.monotonic() - self._since < self._after_s:
            return {}
        out: dict[int, Marker] = {}
        for task, why in away.items():
            marker = last_marker(self._kafka, self._app, task)
            knows = self._wanted <= set(flat(marker.positions))
            if knows and marker.state != RESTORING and why.details.get("past") is None:
                out[task], self.parked[task] = marker, why.message
                log.warning("parked a task", task=f"{self._app}/{task}", why=why.message)
        return out


class Parking:
    """Of one claim.

    Args:
        batches: of the driver; their standing says which tasks are parked.
        claim: takes one task for this driver, in one try.
        read: reads sources between two positions.
        records: reads the progress log from an offset on.
        stopped: whether the driver is to end.
    """

    def __init__(
        self,
        batches: Batches,
        claim: Callable[[int], Marker],
        read: Read,
        records: Callable[[int], Sequence[Recorded]],
        stopped: Callable[[], bool],
    ) -> None:
        self.batches, self._claim, self._read = batches, claim, read
        self._records, self._stopped = records, stopped
        self._returning: dict[int, _Returning] = {}
        self._failure: HoldfastError | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._knock, name="parking", daemon=True)

    def __enter__(self) -> Self:
        """Look from now on whether tasks that are parked are back."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()

    def bring_back(self, within_s: float) -> None:
        """Let tasks that are back repeat what they missed. Between two batches, never beside one.

        Args:
            within_s: no batch is repeated after that time: the others wait.

        Raises:
            Superseded: there is a newer driver.
            ConfigurationError: a task's way to the others is lost; or it needs other code.
        """
        if self._failure is not None:
            raise self._failure
        until = time.monotonic() + within_s
        for task, back in list(self._returning.items()):
            try:
                arrived = self._repeated(task, back, until)
            except (Realign, Unavailable) as error:
                log.warning("a parked task is not back yet", partition=task, why=error.message)
                arrived = task not in self.batches.standing.parked
                del self._returning[task]
            if arrived:
                self._returning.pop(task, None)
                self.batches.unpark(task)

    # ------------------------------------------------------------------ inside

    def _repeated(self, task: int, back: _Returning, until: float) -> bool:
        """Repeat batches while there is time; whether the task stands where the others do."""
        standing = self.batches.standing
        read_anew = False
        while True:
            found = behind([back.at, standing.positions], back.chain, [back.marker.published_to])
            if found is None:
                return True
            if 0 not in found.tasks:
                return False  # it committed what the others have not, and waits for them
            if found.batch is None:
                if read_anew:
                    raise _lost(task, back.at, standing.positions)
                read_anew, back.chain = True, self._chain(back.marker)
                continue
            if self._stopped() or time.monotonic() > until:
                return False
            self.batches.check_code(found.batch, [task])
            to = repeat(self.batches, self._read, found.batch, back.at, standing.positions, [task])
            marker = standing.markers[task]
            if flat(marker.positions) != to:
                raise Unavailable(f"task {task} went away again: {standing.parked.get(task)}")
            back.at, back.marker, read_anew = to, marker, False

    def _chain(self, marker: Marker) -> Chain:
        return Chain(lambda: effective(self._records(marker.recorded)))

    def _knock(self) -> None:
        """In a thread: a host that hangs answers late, and nobody is to wait for that."""
        while not self._closed.wait(LOOK_S):
            for task in list(self.batches.standing.parked):
                if task in self._returning or self._closed.is_set():
                    continue
                try:
                    marker = self._claim(task)
                except Unavailable:
                    continue
                except HoldfastError as error:
                    self._failure = error
                    return
                at = flat(marker.positions)
                log.info("a parked task can be claimed", partition=task, positions=nested(at))
                self.batches.standing.markers[task] = marker
                self._returning[task] = _Returning(marker, self._chain(marker), at)


def _lost(task: int, at: Positions, target: Positions) -> ConfigurationError:
    return ConfigurationError(
        f"task {task} stands at {nested(at)}, behind {nested(target)}, and no record of the "
        "progress topic covers that: it was deleted or cut short. Use another application id, or "
        "bring the topic back",
        tasks=[task],
    )
