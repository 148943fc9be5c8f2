"""What one look at an application shows, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

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
    """A request to stop at a batch's edge.

    Attributes:
        offset: of its record.
        why: for people.
        handover: it is meant for a driver and not for its stream: whoever supervises next starts a
            new one.
    """

    offset: int
    why: str
    handover: bool = False


@dataclass(frozen=True)
class Ended:
    """How a driver ended, in its own words.

    ``retry``: whether starting it again could help; ``restarts``: as `DriverFacts`; ``handover``:
    as `Stop`, of the request that it heeded.
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

    n: int
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
        n: newest batch of that epoch that all tasks have committed; 0 before any.
        clock: of the markers (ms); -1 before any.
        committed_at: wall time (ms) of that commit, by its hosts; 0 before any.
        done, total: source records that all tasks have processed, and that there are.
        batch: what is under way.
        ended: the last ends of drivers, oldest first; that of the claim's driver stays among them.
        asked: the newest request to stop; None before any.
        hosts: what is wrong with state hosts; asked only while there is work and no commit.
        away: why Kafka cannot be asked; the rest is then that of the look before.
    """

    at: int
    drivers: tuple[str, ...] = ()
    epoch: int = -1
    driver: str | None = None
    facts: DriverFacts | None = None
    notice: str | None = None
    n: int = 0
    clock: int = -1
    committed_at: int = 0
    done: int = 0
    total: int = 0
    batch: Running | None = None
    ended: tuple[Ended, ...] = ()
    asked: Stop | None = None
    hosts: tuple[str, ...] = ()
    away: str | None = None

    @property
    def stop(self) -> str | None:
        """Why a stop was asked for after the newest claim, if one was."""
        return None if self.asked is None or self.asked.offset < self.epoch else self.asked.why

    @property
    def stop_offset(self) -> int:
        """Which request that is; -1 without one."""
        return -1 if self.asked is None or self.stop is None else self.asked.offset

    @property
    def handover(self) -> bool:
        """Whether that request is a handover."""
        return self.asked is not None and self.stop is not None and self.asked.handover

    @property
    def heard(self) -> int:
        """Offset after the newest claim and the newest request to stop: what is said next."""
        return max(self.epoch, self.stop_offset) + 1

    def stream_stopped_since(self, offset: int) -> bool:
        """Whether the newest request to stop stands at ``offset`` or after it, and is no handover.

        A claim after it changes nothing: a driver that was launched before the request heeds it.
        """
        return self.asked is not None and self.asked.offset >= offset and not self.asked.handover

    @property
    def lag(self) -> int:
        """Source records that are not processed yet."""
        return max(0, self.total - self.done)

    def end_of(self, driver: str) -> Ended | None:
        """How a driver ended, if it said so."""
        return next((e for e in reversed(self.ended) if e.id == driver), None)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`."""
        facts, batch, asked = data.get("facts"), data.get("batch"), data.get("asked")
        return cls(
            **{
                **data,
                "drivers": tuple(data["drivers"]),
                "hosts": tuple(data["hosts"]),
                "facts": None if facts is None else DriverFacts(**facts),
                "batch": None if batch is None else Running(**batch),
                "asked": None if asked is None else Stop(**asked),
                "ended": tuple(Ended(**e) for e in data["ended"]),
            }
        )
