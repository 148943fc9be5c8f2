"""What ``holdfast drivers`` asks and prints."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from rich.table import Table

from state_lib.apps.catalogue import catalogue, find
from state_lib.cli._reason import reason, reason_unseen
from state_lib.cli._tables import NO_APPLICATIONS, table_or
from state_lib.config import Settings
from state_lib.drivers.look import Looker
from state_lib.drivers.sight import Sight
from state_lib.drivers.states import last_end, state_of
from state_lib.errors import Unavailable
from state_lib.kafka import Kafka
from state_lib.times import iso

Json = dict[str, Any]
_AT_ONCE = 8


def look_twice(settings: Settings, app: str | None, seconds: float) -> list[Json]:
    """One object per application, or of one; rates are those between two looks.

    One that Kafka does not let us read is ``not readable``, one whose topology topic was deleted
    ``topology lost``. ``why`` and ``next_step`` are those of ``holdfast status``.

    Raises:
        NotFound: there is no such application.
        Unavailable: Kafka cannot be asked.
    """
    kafka = Kafka.of(settings)
    known = catalogue(kafka) if app is None else [find(kafka, app)]
    unseen = {one.app: (one, why) for one in known if (why := reason_unseen(one)) is not None}
    ours = [one.app for one in known if one.claim is not None and one.app not in unseen]
    lookers = {name: Looker(settings, name) for name in ours}

    def look(app: str) -> Sight:
        sight = lookers[app].look()
        if not sight.drivers:
            lookers[app].close()
        return sight

    try:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            first = dict(zip(lookers, pool.map(look, lookers), strict=True))
            run = [name for name, sight in first.items() if sight.drivers]
            if run:
                time.sleep(seconds)
            second = first | dict(zip(run, pool.map(look, run), strict=True))
    finally:
        for looker in lookers.values():
            looker.close()
    seen = {name: _seen(name, first[name], second[name]) for name in lookers}
    nothing = Sight(at=0)
    for name, (one, said) in unseen.items():
        seen[name] = {**_seen(name, nothing, nothing), "state": one.state, **asdict(said)}
    return [seen[name] for name in sorted(seen)]


def drivers_table(found: Sequence[Json]) -> Table | str:
    """One row per application."""
    rows = [
        {
            "application": f["app"],
            "state": f["state"],
            "epoch": f["epoch"],
            "since": f["since"],
            "where": None if f["host"] is None else f"{f['host']}/{f['pid']}",
            "batch": f["batch_number"],
            "done": f"{f['done']:,} of {f['total']:,}",
            "lag": f"{f['lag']:,}",
            "records/s": None if f["rows_per_s"] is None else f"{f['rows_per_s']:,.0f}",
            "why": f["ended"] or f["why"],
            "next step": f["next_step"],
        }
        for f in found
    ]
    return table_or(NO_APPLICATIONS, rows)


def _seen(app: str, first: Sight, then: Sight) -> Json:
    if then.away is not None:
        raise Unavailable(f"{app} cannot be looked at: {then.away}", app=app)
    facts = then.facts
    ended = last_end(then)
    seconds = (then.at - first.at) / 1000
    same = first.away is None and bool(then.drivers) and seconds > 0
    rate = max(0, then.done - first.done) / seconds if same else None
    return {
        "app": app,
        "state": state_of(then),
        "drivers": list(then.drivers),
        "epoch": then.epoch,
        "since": None if facts is None else iso(facts.claimed_at),
        "host": None if facts is None else facts.host,
        "pid": None if facts is None else facts.pid,
        "log": None if facts is None else facts.log,
        "restarts": None if facts is None else facts.restarts,
        "ui": None if facts is None else facts.ui,
        "batch_number": then.batch_number,
        "stream_time": None if then.stream_time_ms < 0 else iso(then.stream_time_ms),
        "committed_at": iso(then.committed_at) if then.committed_at else None,
        "done": then.done,
        "total": then.total,
        "lag": then.lag,
        "rows_per_s": None if rate is None else round(rate, 1),
        "stop_asked": then.stop,
        "ended": None if ended is None else f"{ended.how}: {ended.why}",
        **asdict(reason(app, then)),
    }
