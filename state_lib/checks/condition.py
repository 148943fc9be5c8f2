"""Conditions that somebody must know of: each holds now, for one subject or several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from state_lib.checks.verdict import Verdict

LookedFor = Literal[
    "host-down",
    "task-without-owner",
    "driver-stalled",
    "changelog-unsafe",
    "compaction-stuck",
    "store-lost",
    "snapshot-stale",
    "disk-filling",
]
OfRuns = Literal[
    "verify-failed",
    "audit-failed",
    "drill-failed",
    "restore-failed",
    "capacity-failed",
    "approval-waiting",
]
Name = Literal[LookedFor, OfRuns, "cannot-look"]
CANNOT_LOOK: Name = "cannot-look"
"""For any of those that are looked for: nobody who would know can be asked."""
CONDITIONS: tuple[Name, ...] = get_args(LookedFor)
"""What is looked for."""
OF_RUNS: tuple[Name, ...] = get_args(OfRuns)
"""Conditions that runs of Airflow's DAGs report; each has its page in docs/runbook."""
_SHOWN = 3


@dataclass(frozen=True)
class Condition:
    """One that holds.

    Attributes:
        name: which one.
        app: of which application.
        subject: what it is about: a host, a task, a topic, or the application.
        seen, needed: for people, with units.
        step: what to do next.
        page: the name of its page in docs/runbook.
        tasks: those that are concerned, as ``<app>/<partition>``; as far as they are known.
        hosts: ids of those that are concerned.
    """

    name: Name
    app: str
    subject: str
    seen: str
    needed: str
    step: str
    page: str
    tasks: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: Name, app: str, verdict: Verdict, **more: Any) -> Condition:
        """What a check has found."""
        given = {"subject": verdict.subject, "page": verdict.check, **more}
        return cls(name, app, seen=verdict.seen, needed=verdict.needed, step=verdict.step, **given)

    @property
    def document(self) -> str:
        """The page to read, relative to the project's root."""
        return f"docs/runbook/{self.page}.md"

    @property
    def text(self) -> str:
        """For people, in a line."""
        return (
            f"{self.name} of {self.app}, {self.subject}: {self.seen} (needed: {self.needed}). "
            f"Next: {self.step}. Read: {self.document}"
        )

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        lists = {"tasks": list(self.tasks), "hosts": list(self.hosts)}
        return {**asdict(self), **lists, "document": self.document, "text": self.text}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Condition:
        """From `to_json`."""
        known = {k: v for k, v in data.items() if k in cls.__dataclass_fields__}
        return cls(**{**known, "tasks": tuple(data["tasks"]), "hosts": tuple(data["hosts"])})


def together(found: Sequence[Condition]) -> Condition:
    """Several of one name and application as one, of all their subjects; at least one."""
    first, more = found[0], len(found) - _SHOWN
    if len(found) == 1:
        return first
    beyond = f"; and {more} more" if more > 0 else ""
    return replace(
        first,
        subject=", ".join(c.subject for c in found),
        seen="; ".join(f"{c.subject}: {c.seen}" for c in found[:_SHOWN]) + beyond,
        tasks=tuple(dict.fromkeys(t for c in found for t in c.tasks)),
        hosts=tuple(dict.fromkeys(h for c in found for h in c.hosts)),
    )
