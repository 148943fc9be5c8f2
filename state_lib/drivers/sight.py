"""What one look at an application shows, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

How = Literal["stopped", "superseded", "failed"]


@dataclass(frozen=True)
class DriverFacts:
    """What the newest claim's driver says of itself.

    Attributes:
        id, host, pid, log, restarts: as `state_lib.drivers.identity.Identity`.
        epoch: of its claim.
        claimed_at: wall time (ms).
        ui: address of its Spark page, once it streams.
        file, user: the job that it runs, and whose it is; empty of older versions.
    """

    id: str
    host: str
    pid: int
    log: str
    epoch: int
    claimed_at: int
    ui: str | None = None
    file: str = ""
    user: str = ""
    restarts: int = 0


@dataclass(frozen=True)
class Stop:
    """A request to stop at a batch's edge; ``offset`` is its record's, ``why`` is for people."""

    offset: int
    why: str

    def told(self, app: str) -> str:
        """In a sentence."""
        return f"{app} was asked to stop: {self.why}"


@dataclass(frozen=True)
class Ended:
    """How a driver ended, in its own words.

    ``retry``: whether starting it again could help; ``restarts``: as `DriverFacts`; ``handover``:
    whether it ended for a handover.
    """

    id: str
    how: How
    why: str
    retry: bool = True
    restarts: int = 0
    handover: bool = False


@dataclass(frozen=True)
class Running:
    """A batch that was begun and that not all tasks have committed yet; ``since_ms`` is wall."""

    batch_number: int
    rows: int
    since_ms: int


@dataclass(frozen=True)
class Sight:
    """One look at an application from outside.

    Attributes:
        at: wall time (ms).
        drivers: ids of living drivers, by Kafka's group.
        epoch, driver: the newest claim and whose it is; -1 and None before any.
        facts: what that driver says of itself.
        notice: what the newest claim is instead of a driver's: ``a reset by …``.
        batch_number: of the newest batch of that epoch that all tasks have committed; 0 before any.
        stream_time_ms: of the markers; -1 before any.
        committed_at: wall time (ms) of that commit, by its hosts; 0 before any.
        done, total: source records that all tasks have processed, and that there are.
        batch: what is under way.
        ended: the last ends of drivers, oldest first; that of the claim's driver stays among them.
        stop_asked: the newest request to stop the stream; None before any.
        handover_asked: the newest handover: a request that is meant for a driver and not for its
            stream, so that whoever supervises next starts a new one; None before any.
        parked: tasks that the driver has left out, because their hosts are away or restore them;
            ``batch_number``, ``stream_time_ms`` and ``done`` are those of the others.
        repeats: how many batches were seen to be repeated for tasks that had missed them.
        hosts: what is wrong with state hosts; asked only while there is work and no commit.
        away: why Kafka cannot be asked; the rest is then that of the look before.
    """

    at: int
    drivers: tuple[str, ...] = ()
    epoch: int = -1
    driver: str | None = None
    facts: DriverFacts | None = None
    notice: str | None = None
    batch_number: int = 0
    stream_time_ms: int = -1
    committed_at: int = 0
    done: int = 0
    total: int = 0
    batch: Running | None = None
    ended: tuple[Ended, ...] = ()
    stop_asked: Stop | None = None
    handover_asked: Stop | None = None
    parked: tuple[int, ...] = ()
    repeats: int = 0
    hosts: tuple[str, ...] = ()
    away: str | None = None

    @property
    def asked(self) -> Stop | None:
        """The newest request of both kinds; None before any."""
        both = [one for one in (self.stop_asked, self.handover_asked) if one is not None]
        return max(both, key=lambda one: one.offset, default=None)

    @property
    def stop(self) -> str | None:
        """Why the claim's driver was asked to stop last, or to hand over, if it was."""
        return None if self.asked is None or self.asked.offset < self.epoch else self.asked.why

    @property
    def stop_offset(self) -> int:
        """Which request that is; -1 without one."""
        return -1 if self.asked is None or self.stop is None else self.asked.offset

    @property
    def heard(self) -> int:
        """Offset after the newest claim and the newest request: what is said next."""
        return max(self.epoch, self.stop_offset) + 1

    def stream_stopped_since(self, offset: int) -> Stop | None:
        """The newest request to stop the stream, if it stands at ``offset`` or after it.

        A claim after it changes nothing: a driver that was launched before the request heeds it.
        """
        stop = self.stop_asked
        return None if stop is None or stop.offset < offset else stop

    @property
    def lag(self) -> int:
        """Source records that are not processed yet."""
        return max(0, self.total - self.done)

    def end_of(self, driver: str) -> Ended | None:
        """How a driver ended, if it said so."""
        return next((e for e in reversed(self.ended) if e.id == driver), None)
