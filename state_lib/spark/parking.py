"""Tasks that are left out while they are away, and brought to where the others stand.

A task whose host is down, or restores it, would hold up all others. It is parked instead: batches
go on without its rows, and its marker stays. Once it can be claimed again it repeats, alone, the
batches that it missed, between those of the stream. (docs/adr/0020)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Self

import structlog

from state_lib.changelog.progress import Recorded, effective, ticks
from state_lib.driver.runs import Step, run_of
from state_lib.driver.versions import Chain, behind
from state_lib.errors import (
    ConfigurationError,
    HoldfastError,
    Realign,
    Superseded,
    Unavailable,
    UnknownSchemas,
)
from state_lib.protocol.marker import Marker
from state_lib.protocol.positions import Numbers
from state_lib.spark.align import Read, lost, repeat
from state_lib.spark.batches import Batches

log = structlog.get_logger(__name__)
LOOK_S = 1.0
_ALL = 2**63
"""Where the others stand, no tick is missed."""
_LEAST = 2
"""Batches that are repeated between two of the stream: with one, no task would ever gain."""
_PATIENCE_S = 5.0
"""For brokers or a Schema Registry that are away: the others wait as well."""
_FIRST_PAUSE_S, _MOST_PAUSE_S = 2.0, 60.0
"""After a repeat that was refused: the stream waited for it as long as a host may be away."""


@dataclass
class _Returning:
    """A task that could be claimed, and where it stands."""

    marker: Marker
    at: Numbers


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
        self._lock = threading.Lock()  # guards the next two, which the thread changes as well
        self._returning: dict[int, _Returning] = {}
        self._pauses: dict[int, tuple[float, float]] = {}  # task → not before, pause after that
        self._chain: Chain | None = None
        self._since = 0  # offset in the progress log where the chain begins
        self._bound: int | None = None  # most records of a run, once known
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

        Those that stand at one place repeat a batch together.

        Args:
            within_s: after that time, and `_LEAST` batches, the others wait no longer.

        Raises:
            Superseded: there is a newer driver.
            ConfigurationError: a task's way to the others is lost; or it needs other code.
        """
        if self._failure is not None:
            raise self._failure
        until, done, self._bound = time.monotonic() + within_s, 0, None
        while self._returning and not self._stopped():
            self._arrive()
            if done >= _LEAST and time.monotonic() > until:
                return
            late = self._late()
            if late is None:
                return
            self._repeat(*late)
            done += 1

    # ------------------------------------------------------------------ inside

    def _arrive(self) -> None:
        """Those that stand where the others do take part again."""
        with self._lock:
            for task in [t for t, back in self._returning.items() if self._is_here(back)]:
                del self._returning[task]
                self.batches.unpark(task)

    def _late(self) -> tuple[list[int], list[Step], int] | None:
        """The tasks that stand furthest behind, their next run of batches, and how many are left.

        None if those that are back wait for the others: they committed what the others have not.
        """
        here = self.batches.standing.positions
        with self._lock:
            returning = dict(self._returning)
        tasks = [
            task
            for task, back in returning.items()
            if all(back.at.get(p, 0) <= o for p, o in here.items()) and not self._is_here(back)
        ]
        if not tasks:
            return None
        at = [returning[task].at for task in tasks]
        recorded = [returning[task].marker.taken(self.batches.standing.log) for task in tasks]
        taken = [*recorded, _ALL] if self.batches.has_timers else []
        since = min(recorded)
        for anew in (False, True):  # once more if the log has grown since it was read
            if anew or self._chain is None or since < self._since:
                self._chain, self._since = self._chain_from(since), since
            found = behind([*at, here], self._chain, taken=taken)
            if found is not None and found.batch is not None:
                first = Step.of(found.batch, at[found.tasks[0]], here)
                steps = self._run_of(first, self._chain, list(returning.values()))
                return [tasks[i] for i in found.tasks], steps, self._chain.left
        if all(one == here for one in at):
            self._lack_nothing(tasks)
            return None
        raise lost(tasks, at[0], here)

    def _lack_nothing(self, tasks: list[int]) -> None:
        """Ticks that they missed are gone with a progress topic: their timers are due still."""
        standing = self.batches.standing
        log.warning("the progress topic does not hold the ticks that tasks missed", tasks=tasks)
        with self._lock:
            for task in tasks:
                back = self._returning[task]
                taken = replace(back.marker, recorded=standing.recorded, recorded_in=standing.log)
                self._returning[task] = replace(back, marker=taken)

    def _run_of(self, first: Step, chain: Chain, back: Sequence[_Returning]) -> list[Step]:
        """See `state_lib.driver.runs.run_of`; it passes none of those that are back."""
        here, batches = self.batches.standing.positions, self.batches
        places = [here, *(b.at for b in back), *(b.marker.published_to for b in back)]
        alone = batches.depends_on_cut
        return run_of(first, chain, here, places, self._most_records, alone=alone)

    def _most_records(self, at: Numbers) -> int:
        """As of `Batches`, which looks into Kafka: once for each time that the stream waits."""
        if self._bound is None:
            self._bound = self.batches.most_records(at)
        return self._bound

    def _is_here(self, back: _Returning) -> bool:
        """Whether a task stands where the others do, and has taken every tick that they have."""
        standing = self.batches.standing
        missed = self.batches.has_timers and back.marker.taken(standing.log) < standing.recorded
        return back.at == standing.positions and not missed

    def _chain_from(self, since: int) -> Chain:
        said = cache(lambda: self._records(since))
        return Chain(lambda: effective(said()), lambda: ticks(said()))

    def _repeat(self, tasks: list[int], steps: list[Step], left: int) -> None:
        """Once; those that went away again, or refused, are to be claimed again after a pause."""
        standing, until = self.batches.standing, time.monotonic() + _PATIENCE_S
        self.batches.check_code(steps[0].batch, tasks)

        def stopped() -> bool:
            return self._stopped() or time.monotonic() > until

        try:
            to = repeat(self.batches, self._read, steps, tasks, left, stopped)
        except (Realign, Unavailable, UnknownSchemas) as error:
            log.warning("parked tasks are not back yet", partitions=tasks, why=error.message)
            to = {}
        last = steps[-1].batch
        with self._lock:
            for task in tasks:
                marker = standing.markers[task]
                missed = last.tick and marker.taken(standing.log) < last.offset  # no position moved
                if marker.positions == to and not missed:
                    self._returning[task] = _Returning(marker, to)
                    self._pauses.pop(task, None)
                else:
                    del self._returning[task]
                    _, pause = self._pauses.get(task, (0.0, _FIRST_PAUSE_S))
                    again = min(pause * 2, _MOST_PAUSE_S)
                    self._pauses[task] = (time.monotonic() + pause, again)

    def _knock(self) -> None:
        """In a thread: a host that hangs answers late, and nobody is to wait for that."""
        said: dict[int, str] = {}
        while not self._closed.wait(LOOK_S):
            for task in list(self.batches.standing.parked):
                not_before, _ = self._pauses.get(task, (0.0, 0.0))
                early = time.monotonic() < not_before
                if self._closed.is_set() or early or not self._is_missing(task):
                    continue
                try:
                    marker = self._claim(task)
                except Unavailable:
                    continue
                except (Superseded, ConfigurationError) as error:
                    self._failure = error
                    return
                except Exception as error:  # a fault of its host: go on with the others
                    if said.get(task) != str(error):
                        log.exception("a parked task cannot be claimed", partition=task)
                    said[task] = str(error)
                    continue
                with self._lock:
                    if self._is_missing(task):  # an earlier claim may have brought it back
                        at = marker.positions
                        log.info("a parked task can be claimed", partition=task, at=at.to_json())
                        self.batches.standing.markers[task] = marker
                        self._returning[task] = _Returning(marker, at)

    def _is_missing(self, task: int) -> bool:
        return task in self.batches.standing.parked and task not in self._returning
