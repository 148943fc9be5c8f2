"""From facts to a plan: the cheapest valid source of a task's state. Pure: no Kafka, no disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import orjson
import xxhash

from state_lib.errors import InvalidRequest
from state_lib.protocol.stored import from_stored, to_stored
from state_lib.restore.candidates import (
    Option,
    SourceName,
    Step,
    changelog,
    local,
    snapshots,
)
from state_lib.restore.facts import Facts
from state_lib.restore.source import broken_logs, log_lost

__all__ = ["AUTO", "CHANGELOG", "LOCAL", "SNAPSHOT", "Candidate", "RestorePlan", "make_plan"]

AUTO, LOCAL, SNAPSHOT, CHANGELOG = "auto", "local", "snapshot", "changelog"
"""What may be wished for, besides the id of a snapshot; ``snapshot`` is the newest valid one."""
Verdict = Literal["chosen", "not valid", "not needed"]


@dataclass(frozen=True)
class Candidate:
    """A source that was looked at; ``id`` names a snapshot."""

    source: SourceName
    id: str | None
    verdict: Verdict
    why: str
    records: int = 0
    bytes: int = 0
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """What `--from` calls it."""
        return self.id or self.source


@dataclass(frozen=True)
class RestorePlan:
    """How one task gets its state: a value that is printed, approved, sent and run.

    Attributes:
        task: ``<app>/<partition>``.
        made_at: wall time in ms.
        source, snapshot: where the state comes from; ``snapshot`` is the id of one.
        epoch, batch_number: of the marker that the stores will stand at.
        steps: replays, by store; stores that need none are not listed.
        records, bytes, seconds: estimates of what is read and how long that takes.
        needed_bytes, free_bytes: of disk.
        discards: what is not there any more afterwards.
        candidates: every source that was looked at, cheapest first, with the reason.
        offsets: changelog topic → ``[topic id, end]`` that the stores will stand at.
        discarded_at: ``epoch/n`` of the commit at which the directory stands that is discarded;
            "" if there is none, or it cannot be opened.
    """

    task: str
    made_at: int
    source: SourceName
    snapshot: str | None
    epoch: int
    batch_number: int
    steps: tuple[Step, ...]
    records: int
    bytes: int
    seconds: float
    needed_bytes: int
    free_bytes: int
    discards: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    offsets: Mapping[str, list[Any]]
    discarded_at: str = ""

    @property
    def choice(self) -> str:
        """The source by the name that `make_plan` takes."""
        return self.snapshot or self.source

    @property
    def is_nothing(self) -> bool:
        """Whether the directory is as it should be already."""
        return self.source == "local" and not self.steps

    @property
    def is_rescue(self) -> bool:
        """Whether it was made because the directory could not be used, and not by somebody's wish.

        There is nothing left to do once the task is open again.
        """
        return any(c.source == LOCAL and c.verdict == "not valid" for c in self.candidates)

    @property
    def id(self) -> str:
        """Tells it from every other plan: of all that it says."""
        return xxhash.xxh3_128_hexdigest(orjson.dumps(self.to_json(), option=orjson.OPT_SORT_KEYS))

    def to_json(self) -> dict[str, Any]:
        """As plain data: what JSON has, and nothing else."""
        said = to_stored(asdict(self))
        return said | {name: list(said[name]) for name in ("steps", "discards", "candidates")}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RestorePlan:
        """From plain data. Raises InvalidRequest for what is no plan of this Holdfast."""
        try:
            steps = tuple(Step(**s) for s in data["steps"])
            candidates = tuple(Candidate(**c) for c in data["candidates"])
            discards = tuple(data["discards"])
            given = {"steps": steps, "candidates": candidates, "discards": discards}
            return cls(**from_stored({**data, **given}))
        except (KeyError, TypeError) as error:
            raise InvalidRequest(
                f"not a plan as 'holdfast restore plan APP --json' prints it ({error!r}): make one "
                "with the version of Holdfast that hosts have"
            ) from error


def make_plan(facts: Facts, wanted: str = AUTO) -> RestorePlan:
    """Choose the first valid source, cheapest first: local, snapshots from the newest, changelog.

    Args:
        facts: see `Facts`.
        wanted: `AUTO`, or the one source to use.

    Raises:
        InvalidRequest: ``wanted`` is not valid, or unknown; says why.
        LogLost: no source is valid, for a changelog is not whole (`broken_logs`).
    """
    options = [local(facts), *snapshots(facts), changelog(facts)]
    chosen = _cheapest(facts, options) if wanted == AUTO else _wished(facts, options, wanted)
    discards: tuple[str, ...] = ()
    discarded_at = ""
    if chosen.source != LOCAL:
        discards, discarded_at = _discarded(facts), _stands_at(facts)
    return RestorePlan(
        task=facts.task,
        made_at=facts.now,
        source=chosen.source,
        snapshot=chosen.id,
        epoch=facts.marker.epoch,
        batch_number=facts.marker.batch_number,
        steps=chosen.steps,
        records=chosen.records,
        bytes=chosen.bytes,
        seconds=chosen.seconds,
        needed_bytes=chosen.needed_bytes,
        free_bytes=facts.free_bytes,
        discards=discards,
        candidates=tuple(_candidate(o, chosen) for o in options),
        offsets={topic: [log.topic_id, log.end] for topic, log in facts.logs.items()},
        discarded_at=discarded_at,
    )


def _cheapest(facts: Facts, options: list[Option]) -> Option:
    for option in options:
        if option.why_not is None:
            return option
    for topic, why in broken_logs(facts.topology, facts.marker, facts.logs).items():
        raise log_lost(facts.topology, facts.partition, topic, why)
    raise AssertionError  # a complete changelog is always valid


def _wished(facts: Facts, options: list[Option], wanted: str) -> Option:
    for option in options:
        if option.name == wanted or (wanted == option.source and option.why_not is None):
            if option.why_not is None:
                return option
            raise _not_valid(facts, wanted, option.why_not)
    if facts.storage is not None:  # nobody can tell which snapshots there are
        raise _not_valid(facts, wanted, facts.storage)
    known = [o.name for o in options]
    raise InvalidRequest(
        f"{facts.task} has no source {wanted!r}; there are: {', '.join(known)}",
        task=facts.task,
        wanted=wanted,
        known=known,
    )


def _not_valid(facts: Facts, wanted: str, why: str) -> InvalidRequest:
    return InvalidRequest(
        f"{facts.task} cannot be restored from {wanted}: {why}. See `holdfast restore plan "
        f"{facts.topology.app} --task {facts.partition}`",
        task=facts.task,
        wanted=wanted,
        why=why,
    )


def _candidate(option: Option, chosen: Option) -> Candidate:
    verdict: Verdict = "not needed"
    why = f"{option.about}; {chosen.name} is cheaper or asked for"
    if option is chosen:
        verdict, why = "chosen", option.about
    elif option.why_not is not None:
        verdict, why = "not valid", option.why_not
    return Candidate(
        option.source, option.id, verdict, why, option.records, option.bytes, option.seconds
    )


def _discarded(facts: Facts) -> tuple[str, ...]:
    local, found = facts.local, []
    if local.size_bytes:
        size = f"the present directory ({local.size_bytes / 1e6:,.1f} MB"
        at = _stands_at(facts)
        where = f", at commit {at}" if at else ""
        found.append(f"{size}{where}): set aside, and removed once the restored one is verified")
    if local.aside_bytes:
        size = f"{local.aside_bytes / 1e6:,.1f} MB"
        found.append(f"what was set aside ({size}): removed once the restored one is verified")
    return tuple(found)


def _stands_at(facts: Facts) -> str:
    checkpoint = facts.local.checkpoint
    return (
        "" if checkpoint is None else f"{checkpoint.marker.epoch}/{checkpoint.marker.batch_number}"
    )
