"""Looks at an application from outside: at its driver, its commits and its lag, through Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
from confluent_kafka import KafkaException, Message

from state_lib.changelog.claims import HANDOVER, STOP, STREAMING, Claim, Notice
from state_lib.changelog.reader import read_last
from state_lib.changelog.topics import (
    commits_topic,
    progress_topic,
    topology_topic,
)
from state_lib.drivers.control import stop_of
from state_lib.drivers.hosts import complaints
from state_lib.drivers.last_words import LastWords, end_in, is_end
from state_lib.drivers.members import living_drivers
from state_lib.drivers.process import DriverProcess
from state_lib.drivers.sight import DriverFacts, Running, Sight, Stop
from state_lib.drivers.tail import Tail
from state_lib.errors import HoldfastError, KafkaRefused, Unavailable
from state_lib.kafka import Kafka, Partition, describe, ends, starts
from state_lib.protocol.marker import NO_TIME, Marker, now_ms
from state_lib.protocol.positions import Positions

if TYPE_CHECKING:
    from state_lib.config import Settings

ASK_TIMEOUT_S = 4.0
ASK_HOSTS_AFTER_MS = 10_000


class Looker:
    """Looks again and again. For one thread at a time.

    Clients that met an absent broker are dropped: librdkafka's admin client may wait endlessly
    for a controller that is long back [tried].

    Attributes:
        refused: why Kafka did not let us look the last time, if that is why.
    """

    def __init__(self, settings: Settings, app: str) -> None:
        self._settings, self._app = settings, app
        self._last = Sight(at=0)
        self._quiet_since = 0
        self._story: _Story | None = None
        self.refused: KafkaRefused | None = None

    def look(self) -> Sight:
        """One look, of a few seconds at most; ``away`` is set if Kafka does not answer."""
        try:
            if self._story is None:
                self._story = _Story(Kafka.of(self._settings), self._app)
            self._last = self._with_hosts(self._story.look())
            self.refused = None
        except (HoldfastError, KafkaException) as error:
            self.close()
            self.refused = error if isinstance(error, KafkaRefused) else None
            why = error.message if isinstance(error, HoldfastError) else str(error)
            self._last = replace(self._last, at=now_ms(), away=why)
        return self._last

    def _with_hosts(self, sight: Sight) -> Sight:
        """Ask the hosts as well, if nothing is committed for a while, or a task is left out."""
        moved = (sight.epoch, sight.batch_number) != (self._last.epoch, self._last.batch_number)
        if moved or sight.lag == 0:
            self._quiet_since = sight.at
        left_out = set(sight.parked) - set(self._last.parked)
        if not left_out and sight.at - self._quiet_since < ASK_HOSTS_AFTER_MS:
            return sight
        return replace(sight, hosts=complaints(self._settings, self._app))

    def close(self) -> None:
        """Free Kafka clients; the next look makes new ones."""
        if self._story is not None:
            self._story.close()
            self._story = None


def observe(looker: Looker, process: DriverProcess | None) -> tuple[Sight, bool | None]:
    """A look, and whether the process lived before it.

    In this order: what a driver said before it ended is then in the sight that goes with its death.
    """
    alive = None if process is None else process.alive()
    return looker.look(), alive


class _Story:
    """All that Kafka has of one application, read as it comes."""

    def __init__(self, kafka: Kafka, app: str) -> None:
        self._kafka, self._app = kafka, app
        self._topology: Partition = (topology_topic(app), 0)
        self._progress: Partition = (progress_topic(app), 0)
        self._tail = Tail(kafka)
        self._claim: Claim | None = None
        self._stop: Stop | None = None
        self._handover: Stop | None = None
        self._ui: dict[str, str | None] = {}
        self._ended = LastWords()
        self._begun: dict[str, Any] = {}
        self._parked: tuple[int, tuple[int, ...]] = -1, ()
        self._repeats = 0
        self._markers: dict[int, Marker] = {}

    def look(self) -> Sight:
        names = [self._topology[0], self._progress[0], commits_topic(self._app)]
        sources = () if self._claim is None else self._claim.topology.sources
        facts = describe(self._kafka.admin(), [*names, *sources], ASK_TIMEOUT_S)
        if self._topology[0] not in facts:
            return Sight(at=now_ms())
        own = [(n, p) for n in names if n in facts for p in range(facts[n].partitions)]
        there = [(s, p) for s in sources if s in facts for p in range(facts[s].partitions)]
        end = ends(self._kafka.admin(), [*own, *there])
        if any(self._tail.after(p) > end[p] for p in own):
            raise Unavailable(f"the topics of {self._app!r} were made anew; they are read again")
        self._follow(own)
        for message in self._tail.read({p: end[p] for p in own}, ASK_TIMEOUT_S):
            self._take(message)
        if self._claim is not None and self._claim.topology.sources != sources:
            return self.look()  # its sources are known now
        return self._sight(there, end)

    def close(self) -> None:
        self._tail.close()

    def _follow(self, partitions: list[Partition]) -> None:
        """Start with the last record where only that counts, with the first one of the topology."""
        new = [p for p in partitions if p not in self._tail]
        first = starts(self._kafka.admin(), new)
        begin = {}
        for topic, partition in new:
            start = first[topic, partition]
            if topic != self._topology[0] and (last := read_last(self._kafka, topic, partition)):
                self._take(last)
                start = (last.offset() or 0) + 1
            begin[topic, partition] = start
        self._tail.follow(begin)

    def _take(self, message: Message) -> None:
        value = message.value()
        if value is None:
            return
        if message.topic() == self._progress[0]:
            self._progressed(orjson.loads(value))
        elif message.topic() != self._topology[0]:
            self._markers[message.partition() or 0] = Marker.from_bytes(value)
        elif message.key() == STOP:
            self._stop = stop_of(message)
        elif message.key() == HANDOVER:
            self._handover = stop_of(message)
        elif message.key() == STREAMING:
            said = orjson.loads(value)
            self._ui = {said["id"]: said.get("ui")}
        elif is_end(message.key()):
            holder = None if self._claim is None else self._claim.by.get("id")
            self._ended.take(end_in(message), holder)
        elif message.key() == self._app.encode():
            self._claim = Claim.of(message)

    def _progressed(self, said: dict[str, Any]) -> None:
        if "parked" in said:
            self._parked = said["epoch"], tuple(int(p) for p in said["parked"])
        if "kind" not in said:  # records with a kind are no batches, but restores for example
            self._repeats += said.get("tasks") is not None
            self._begun = said

    def _sight(self, there: list[Partition], end: dict[Partition, int]) -> Sight:
        claim = self._claim
        if claim is None:
            return Sight(
                at=now_ms(),
                drivers=self._members(),
                ended=self._ended.ends(),
                stop_asked=self._stop,
                handover_asked=self._handover,
            )
        epoch, who = claim.epoch, _facts(claim, self._ui)
        parked = self._parked[1] if self._parked[0] == epoch else ()
        present = [p for p in range(claim.topology.partitions) if p not in parked]
        every = [self._markers.get(p) for p in present]
        markers = [m for m in every if m is not None]
        complete = len(markers) == len(every)
        ours = complete and all(m.epoch == epoch for m in markers)
        n = min(m.batch_number for m in markers) if ours else 0
        at = [m.positions for m in markers] if complete else [Positions()]
        return Sight(
            at=now_ms(),
            drivers=self._members(),
            epoch=epoch,
            notice=_words(claim.notice),
            driver=None if who is None else who.id,
            facts=who,
            batch_number=n,
            stream_time_ms=max((m.stream_time_ms for m in markers), default=NO_TIME),
            committed_at=min(m.written_at for m in markers) if n else 0,
            done=sum(min(x.get(p, 0) for x in at) for p in there),
            total=sum(end[p] for p in there),
            batch=self._running(epoch, n),
            parked=parked,
            repeats=self._repeats,
            ended=self._ended.ends(),
            stop_asked=self._stop,
            handover_asked=self._handover,
        )

    def _running(self, epoch: int, committed: int) -> Running | None:
        begun = self._begun
        if not begun or begun["epoch"] != epoch or begun["n"] <= committed:
            return None
        rows = sum(Positions.of(begun["to"]).values()) - sum(Positions.of(begun["from"]).values())
        return Running(begun["n"], rows, begun["now"])

    def _members(self) -> tuple[str, ...]:
        return living_drivers(self._kafka, self._app, ASK_TIMEOUT_S)


def _facts(claim: Claim, uis: Mapping[str, str | None]) -> DriverFacts | None:
    by = claim.by
    if "id" not in by:
        return None  # written by an older version
    own = {key: by[key] for key in ("id", "host", "pid", "log", "claimed_at")}
    whose = {key: by.get(key, "") for key in ("file", "user")}
    restarts = by.get("restarts", 0)
    ui = uis.get(by["id"])
    return DriverFacts(**own, **whose, epoch=claim.epoch, ui=ui, restarts=restarts)


def _words(notice: Notice | None) -> str | None:
    return None if notice is None else f"a {notice.kind} by {notice.by}"
