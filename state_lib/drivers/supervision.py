"""Judges a driver's life by what is seen of it. Pure: no clock, no I/O, all state serializable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, Self

from state_lib.drivers.alarms import Alarms
from state_lib.drivers.events import Event
from state_lib.drivers.failures import Failure, Failures
from state_lib.drivers.last_words import end_in_log
from state_lib.drivers.living import Living
from state_lib.drivers.reporting import Reporting
from state_lib.drivers.requests import Requests
from state_lib.drivers.sight import Ended, Sight, Stop

Phase = Literal["starting", "running", "waiting", "due", "over"]
SAID_LINES = 15


@dataclass
class Supervision:
    """The supervisor of one application's driver.

    Args:
        app: the application.
        id: of the driver that was just launched, or adopted.
        launched_at: wall seconds.
        max_restarts: in a row, without a commit in between; then it gives up.
        restarts: how often the driver was started again, in all.
    """

    app: str
    id: str
    launched_at: float
    max_restarts: int = 8
    restarts: int = 0
    phase: Phase = "starting"
    epoch: int = -1
    base: int | None = None
    committed: bool = False
    awaited: bool = False
    done_before: int = 0
    away: bool = False
    failures: Failures = field(default_factory=Failures)
    requests: Requests = field(default_factory=Requests)
    living: Living = field(default_factory=Living)
    reporting: Reporting = field(default_factory=Reporting)
    alarms: Alarms = field(default_factory=Alarms)

    @property
    def due(self) -> bool:
        """Whether a restart was announced and `launched` has not been called since."""
        return self.phase == "due"

    @property
    def over(self) -> bool:
        """Whether nothing more will come: stopped, superseded or given up."""
        return self.phase == "over"

    def overdue(self, now: float) -> bool:
        """Whether the driver has had its time to end after its last words (``now``: wall s)."""
        return self.living.overdue(now)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`."""
        known = {f.name for f in fields(cls)}
        given = {k: v for k, v in data.items() if k in known}
        own = {
            "failures": Failures.from_json(given.get("failures", {})),
            "requests": Requests.from_json(given.get("requests", {})),
            "living": Living.from_json(given.get("living", {})),
            "reporting": Reporting.from_json(given["reporting"]),
            "alarms": Alarms.from_json(given["alarms"]),
        }
        return cls(**{**given, **own})

    def launched(
        self,
        driver: str,
        now: float,
        sight: Sight | None = None,
        *,
        ending: int = -1,
        stop: Stop | None = None,
    ) -> None:
        """A driver was launched, or found, at the beginning or because of ``restart``.

        Args:
            driver: its id.
            now: wall seconds.
            sight: the look before the launch, as later requests are meant for this driver; or the
                look that found the driver. If Kafka was away, the first look after that counts.
            ending: as `Requests`.
            stop: an earlier request to stop the stream of a driver that was found; it takes
                precedence over ``ending``.
        """
        self.id, self.launched_at, self.phase = driver, now, "starting"
        self.epoch, self.base = -1, None
        self.requests = Requests(ending=ending) if stop is None else Requests(stop.offset - 1)
        shown = None if sight is None or sight.away is not None else sight
        if shown is not None:
            self._begin(shown)
        self.committed = self.awaited = False
        self.living.begin(joined=shown is not None and driver in shown.drivers)
        self.reporting.begin()
        self.alarms.begin()

    def not_launched(self, why: str, now: float) -> Event:
        """No driver could be launched after ``restart``: a failure like that of a driver.

        Returns:
            ``crashed``: it is tried again after a pause; or ``gave_up``.
        """
        failure = Failure(f"the driver of {self.app} could not be launched", why)
        return self._failed(failure, now, committed=False)[-1]

    def stop_asked(self, sight: Sight) -> Stop | None:
        """The stop of the stream that was asked for since its driver was launched, if one was."""
        return self.requests.stop(sight)

    def feed(
        self, sight: Sight, *, process: bool | None, now: float, said: Sequence[str] = ()
    ) -> list[Event]:
        """Judge one look.

        Args:
            sight: taken after ``process`` was asked for (`state_lib.drivers.look.observe`).
            process: whether the driver's process lives; None if only Kafka shows that.
            now: wall seconds: this state outlives processes, and their monotonic clocks.
            said: the last lines of the driver's log, once it is gone.

        Returns:
            New events. Every incident is reported once when it begins and once when it ends; after
            ``stopped``, ``superseded`` or ``gave_up`` comes nothing.
        """
        if self.over:
            return []
        events = self._reach_kafka(sight, now)
        if sight.away is not None:
            return events  # the other facts are those of an earlier look
        if self.base is None:
            self._begin(sight)
        if self.phase in ("waiting", "due"):
            return events + self._wait(sight, now)
        return events + self._watch(sight, process, now, said)

    # ------------------------------------------------------------------ inside

    def _begin(self, sight: Sight) -> None:
        """What was claimed and asked for before this driver is not about it."""
        self.base = -1 if sight.driver == self.id else sight.epoch
        self.requests.begin(self.id, sight)

    def _reach_kafka(self, sight: Sight, now: float) -> list[Event]:
        if (sight.away is not None) == self.away:
            return []
        self.away = sight.away is not None
        if self.away:
            text = f"Kafka cannot be asked about {self.app}: {sight.away}"
            return [Event("kafka_away", text, {"why": sight.away})]
        self.living.interrupted(now)
        self.reporting.interrupted()
        self.alarms.interrupted()
        return [Event("kafka_back", f"Kafka answers about {self.app} again")]

    def _wait(self, sight: Sight, now: float) -> list[Event]:
        """Between a crash and the next start."""
        if self.requests.hears(sight):
            return [self._stopped(sight)]
        if self._taken_over(sight):
            return [self._superseded(sight)]
        if self.due or now < self.failures.restart_at:
            return []
        self.phase = "due"
        n = self.failures.in_a_row
        text = f"starting the driver of {self.app} again (failure {n} in a row)"
        return [Event("restart", text, {"failures": n})]

    def _watch(
        self,
        sight: Sight,
        process: bool | None,  # noqa: FBT001 - three values
        now: float,
        said: Sequence[str],
    ) -> list[Event]:
        """A driver that should live."""
        events = self._follow(sight, now)
        if self.over:
            return events
        if not self.living.feed(self.id, self.launched_at, sight, process=process, now=now):
            return events + self._end(sight, now, said)
        if self.phase == "starting":
            return events + self.alarms.starting(self.app, now - self.launched_at)
        return events + self.alarms.feed(self.app, self.id, sight, now)

    def _follow(self, sight: Sight, now: float) -> list[Event]:
        """A driver that lives, as far as its claim and its commits show."""
        if sight.driver != self.id:
            if self.epoch >= 0 and self._taken_over(sight):
                return [self._superseded(sight)]
            self.awaited = True
            return []
        events = []
        self.epoch = sight.epoch
        if self.phase == "starting":
            self.phase = "running"
            if sight.facts is not None:  # an adopted driver knows its earlier restarts
                self.restarts = max(self.restarts, sight.facts.restarts)
            where = sight.facts and f" on {sight.facts.host}, process {sight.facts.pid}"
            text = f"the driver of {self.app} has claimed it (epoch {sight.epoch}{where or ''})"
            events.append(Event("started", text, {"epoch": sight.epoch, "driver": self.id}))
            self.done_before = sight.done
        # The first commit may only resolve positions, which does not show that batches work.
        moved = sight.batch_number > 1 or sight.done > self.done_before or sight.lag == 0
        if sight.batch_number > 0 and moved and not self.committed:
            self.committed, self.failures = True, Failures()
            events.append(self._commits(sight, now))
        self.awaited = True
        return events + self.reporting.feed(self.app, sight, now)

    def _commits(self, sight: Sight, now: float) -> Event:
        """Since when is known only if it was seen to commit nothing yet: a new trigger has not."""
        text, details = f"{self.app} commits", dict[str, Any](epoch=sight.epoch)
        if self.awaited:
            details["seconds"] = round(now - self.launched_at, 1)
            text += f", {details['seconds']:.0f} s after its driver was launched"
        return Event("committing", text, details)

    def _end(self, sight: Sight, now: float, said: Sequence[str]) -> list[Event]:
        """A driver that is gone: why, and what follows from it."""
        end = sight.end_of(self.id) or end_in_log(said, self.id)
        if end is not None and end.how == "stopped":
            return [self._stopped(sight, end)]
        if self._taken_over(sight) or (end is not None and end.how == "superseded"):
            return [self._superseded(sight)]
        # A driver that fails while it stops was to end, too.
        if self.requests.is_handover(sight, end) or (end is None and self.requests.hears(sight)):
            return [self._stopped(sight, end)]
        lines = list(said[-SAID_LINES:])
        why = end.why if end is not None else "\n".join(lines) or "it said nothing"
        hopeless = end is not None and not end.retry
        failure = Failure(f"the driver of {self.app} is gone", why, hopeless, lines)
        return self._failed(failure, now, committed=self.committed)

    def _failed(self, failure: Failure, now: float, *, committed: bool) -> list[Event]:
        """One failure more, or the first after commits: a pause, or the end."""
        if committed:
            self.failures = Failures()
        events = self.failures.more(self.app, failure, now, most=self.max_restarts)
        self.phase = "over" if events[-1].name == "gave_up" else "waiting"
        return events

    def _stopped(self, sight: Sight, end: Ended | None = None) -> Event:
        """The end of the stream; or of its driver alone, and a restart."""
        asked = self.requests.stop(sight) or sight.asked
        text = f"the driver of {self.app} is gone" if asked is None else asked.told(self.app)
        if end is not None:
            text = f"the driver of {self.app} has {end.how}: {end.why}"
        if not self.requests.is_handover(sight, end):
            return self._over("stopped", text)
        self.requests.handed_over(sight)
        self.phase = "due"
        text = f"{text}. That ends a driver and not the stream; starting a new one"
        return Event("restart", text, {"failures": self.failures.in_a_row})

    def _taken_over(self, sight: Sight) -> bool:
        """Whether a driver other than ours has claimed after it, or since it was launched."""
        known = self.epoch if self.epoch >= 0 else (-1 if self.base is None else self.base)
        return sight.driver != self.id and sight.epoch > known

    def _superseded(self, sight: Sight) -> Event:
        other = sight.facts if sight.driver != self.id else None  # it may not have claimed yet
        who = other and f"another driver (on {other.host}, process {other.pid})"
        by = sight.notice or who or "another driver"
        text = f"{self.app} was taken over by {by}; this driver is not started again"
        return self._over("superseded", text, epoch=sight.epoch, driver=sight.driver)

    def _over(self, name: Literal["stopped", "superseded"], text: str, **details: Any) -> Event:
        self.phase = "over"
        return Event(name, text, details)
