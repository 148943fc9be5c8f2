"""Why a stream is in its state, and what to do, as ``holdfast drivers`` and ``status`` say."""

from __future__ import annotations

from dataclasses import dataclass

from state_lib.apps.catalogue import Known
from state_lib.changelog.topics import topology_topic
from state_lib.drivers.sight import Sight
from state_lib.drivers.states import last_end, state_of


@dataclass(frozen=True)
class Reason:
    """For people. ``why``: it failed, was asked to stop, or cannot be seen; ``next_step``: then."""

    why: str | None = None
    next_step: str | None = None


def reason_unseen(known: Known) -> Reason | None:
    """Of an application that nobody can look at; None of any other."""
    if known.refused is not None:
        return Reason(known.refused, "nothing, if it is another team's")
    if known.lost:
        mended = f"'holdfast repair topology {known.app}', then start its job"
        return Reason(f"topic {topology_topic(known.app)!r} was deleted", mended)
    return None


def reason(app: str, sight: Sight) -> Reason:
    """Of a look."""
    if sight.away is not None:
        return Reason(sight.away, "look at the brokers")
    end = last_end(sight)
    if end is not None and state_of(sight) == "failed":
        return Reason(end.why, _after_failure(app, sight, retry=end.retry))
    own = None if end is None else sight.end_of(end.id)
    if end is not None and own is not None and own.how != end.how:  # it was stopped after that
        return Reason(end.why, f"nothing starts it again by itself: start the job of {app}")
    return Reason(sight.stop)


def _after_failure(app: str, sight: Sight, *, retry: bool) -> str:
    log = "" if sight.facts is None else sight.facts.log
    where = f"; its log: {log}" if log else ""
    if retry:
        return f"its supervisor starts it again; where it has none, start the job of {app}{where}"
    return f"correct that, then start the job of {app}: nobody starts it again by itself{where}"
