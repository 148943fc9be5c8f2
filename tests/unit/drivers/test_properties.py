"""Whatever happens to a driver, what is told of it makes sense."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from state_lib.drivers.events import Event
from state_lib.drivers.sight import DriverFacts, Ended, How, Sight, Stop
from state_lib.drivers.supervision import Supervision

HAPPENS = (
    *("pass", "long", "claim", "commit", "arrive") * 5,
    *("leave", "join", "away", "back", "hidden", "visible", "die") * 2,
    *("fail", "stop", "ask", "rival"),
    *("clear", "die", "die"),
)


class World:
    """The state of things, changed by one happening at a time.

    ``blind``: whether Kafka is away whenever a driver is launched, or found.
    """

    def __init__(self, *, blind: bool = False) -> None:
        self.supervision = Supervision("app", "d0", 0.0, max_restarts=3)
        self.twin = Supervision("app", "d0", 0.0, max_restarts=3)
        self.now = 0.0
        self.id, self.launches, self.deaths = "d0", 1, 0
        self.alive, self.visible, self.member, self.away = True, True, False, False
        self.blind = blind
        self.offset, self.epoch, self.driver = 1, -1, ""
        self.launched_at, self.stop_at, self.handover_at = 1, 0, 1
        """Offsets; a stop and a handover were asked for long ago."""
        self.n, self.done, self.total = 0, 0, 0
        self.ended: tuple[Ended, ...] = ()
        self.told: list[Event] = []

    def happens(self, what: str) -> None:  # noqa: C901 - a list of what may happen
        self.offset += 1
        match what:
            case "long":
                self.now += 200
            case "claim" if self.alive:
                self.epoch, self.driver, self.n, self.member = self.offset, self.id, 0, True
            case "commit" if self.alive and self.driver == self.id:
                self.n, self.done = self.n + 1, self.total
            case "arrive":
                self.total += 1000
            case "die" | "fail" | "stop" if self.alive:
                self.alive = self.member = False
                self.deaths += 1
                if what != "die":
                    how: How = "failed" if what == "fail" else "stopped"
                    end = Ended(self.id, how, "why", handover=self.is_handover)
                    self.ended = (*self.ended, end)[-3:]
            case "ask":
                self.stop_at = self.offset
            case "clear":
                self.handover_at = self.offset
            case "rival":
                self.epoch, self.driver, self.n = self.offset, "rival", 0
            case "leave" | "join" if self.alive:
                self.member = what == "join"
            case "away" | "back":
                self.away = what == "away"
            case "hidden" | "visible":
                self.visible = what == "visible"
        self.look()

    @property
    def is_handover(self) -> bool:
        """Whether that is all that the driver was asked for."""
        return self.handover_at > self.launched_at >= self.stop_at

    def may_be_over(self) -> None:
        """A stop of before, or a handover, is no end of the stream."""
        asked = self.stop_at > self.launched_at
        own = self.ended and self.ended[-1].id == self.id and self.ended[-1].how == "stopped"
        assert asked or (own and not self.ended[-1].handover)

    def may_start_again(self) -> None:
        """After a crash, or after a handover."""
        crashes = [e.name for e in self.told if e.name in ("crashed", "restart")][-2:]
        assert crashes[:1] == ["crashed"] or self.handover_at > self.launched_at

    def look(self) -> None:
        self.now += 2
        facts = DriverFacts(self.driver, "h", 1, "", self.epoch, 0)
        sight = Sight(
            at=int(self.now * 1000),
            drivers=(self.id,) if self.member else (),
            epoch=self.epoch,
            driver=self.driver or None,
            facts=facts,
            batch_number=self.n,
            done=self.done,
            total=self.total,
            ended=self.ended,
            stop_asked=Stop(self.stop_at, "asked"),
            handover_asked=Stop(self.handover_at, "cleared"),
            away="no brokers" if self.away else None,
        )
        process = self.alive if self.visible else None
        new = self.supervision.feed(sight, process=process, now=self.now, said=["last words"])
        self.twin = Supervision.from_json(json.loads(json.dumps(self.twin.to_json())))
        assert self.twin.feed(sight, process=process, now=self.now, said=["last words"]) == new
        self.told += new
        if "stopped" in [e.name for e in new]:
            self.may_be_over()
        if self.supervision.due:
            self.may_start_again()
            self.id = f"d{self.launches}"
            self.launches += 1
            self.alive, self.member, self.launched_at = True, False, self.offset
            shown = Sight(at=0, away="no brokers") if self.blind else sight
            self.supervision.launched(self.id, self.now, shown)
            self.twin.launched(self.id, self.now, shown)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(HAPPENS), max_size=60), st.booleans())
def test_what_is_told_makes_sense(happenings: list[str], blind: bool) -> None:
    world = World(blind=blind)
    for what in happenings:
        world.happens(what)
    names = [e.name for e in world.told]
    counts = Counter(names)

    final = [name for name in names if name in ("stopped", "superseded", "gave_up")]
    assert len(final) <= 1
    assert not final or names[-1] == final[0]
    assert world.supervision.over == bool(final)

    lives = [n for n in names if n in ("crashed", "restart")]
    assert ("crashed", "crashed") not in pairwise(lives), "each crash has a restart of its own"
    if "clear" not in happenings:
        assert ("restart", "restart") not in pairwise(lives), "restarts only answer crashes"
    assert counts["restart"] == world.launches - 1
    if not any(what in happenings for what in ("hidden", "leave")):
        assert counts["crashed"] <= world.deaths

    for opened, closed, of in (
        ("kafka_away", "kafka_back", None),
        ("stalled", "recovered", "stalled"),
        ("unresponsive", "recovered", "unresponsive"),
        ("lag_growing", "lag_shrinking", None),
    ):
        both = [
            e.name
            for e in world.told
            if e.name == opened or (e.name == closed and e.details.get("of") == of)
        ]
        pairs = [opened, closed] * len(both)
        assert both == pairs[: len(both)], f"{opened} and {closed} take turns"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(("long", "pass", "claim", "die")), max_size=80))
def test_a_driver_that_never_commits_is_given_up(happenings: list[str]) -> None:
    world = World()
    for what in [*happenings, *["die", "long", "long"] * 6]:
        world.happens(what)
    assert [e.name for e in world.told].count("gave_up") == 1
    assert world.launches == 1 + 3
