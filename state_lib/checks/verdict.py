"""What a check says of what it looked at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

Level = Literal["ok", "warn", "fail"]
_LEVELS: tuple[Level, ...] = get_args(Level)


@dataclass(frozen=True)
class Change:
    """A setting of a topic that the application owns, and the value that puts it right."""

    topic: str
    key: str
    seen: str
    wanted: str


@dataclass(frozen=True)
class Verdict:
    """One check of one subject.

    Attributes:
        check: its name, that of its page in docs/runbook as well.
        subject: a topic, a host, tasks, or the application.
        level: ``ok``; ``warn``: it will be a failure, or may hide one; ``fail``: state is being
            lost, or could not be restored or committed.
        seen, needed: for people, with units.
        step: what to do next; empty if it is ok.
        changes: what ``holdfast repair config`` would set.
    """

    check: str
    subject: str
    level: Level
    seen: str
    needed: str
    step: str = ""
    changes: tuple[Change, ...] = ()

    @property
    def document(self) -> str:
        """The page to read, relative to the project's root."""
        return f"docs/runbook/{self.check}.md"

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {**asdict(self), "document": self.document}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Verdict:
        """From `to_json`."""
        known = {k: v for k, v in data.items() if k in cls.__dataclass_fields__}
        return cls(**{**known, "changes": tuple(Change(**c) for c in data.get("changes", ()))})


@dataclass(frozen=True)
class Report:
    """All verdicts of one application at one time (ms)."""

    app: str
    at: int
    verdicts: tuple[Verdict, ...]

    @property
    def level(self) -> Level:
        """The worst."""
        return worst(v.level for v in self.verdicts)

    @property
    def exit_code(self) -> int:
        """0 ok, 1 warn, 2 fail."""
        return _LEVELS.index(self.level)

    @property
    def alarms(self) -> tuple[Verdict, ...]:
        """What is not ok, the worst first."""
        bad = [v for v in self.verdicts if v.level != "ok"]
        return tuple(sorted(bad, key=lambda v: -_LEVELS.index(v.level)))

    @property
    def changes(self) -> tuple[Change, ...]:
        """What ``holdfast repair config`` would set; one for each setting of a topic."""
        found = {(c.topic, c.key): c for v in self.verdicts for c in v.changes}
        return tuple(found[at] for at in sorted(found))

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        verdicts = [v.to_json() for v in self.verdicts]
        return {"app": self.app, "at": self.at, "level": self.level, "verdicts": verdicts}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Report:
        """From `to_json`."""
        verdicts = tuple(Verdict.from_json(v) for v in data["verdicts"])
        return cls(data["app"], data["at"], verdicts)


def worst(levels: Iterable[Level]) -> Level:
    """The worst of some; ok of none."""
    return max(levels, key=_LEVELS.index, default="ok")
