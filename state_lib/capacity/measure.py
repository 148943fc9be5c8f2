"""Asks everybody who knows, and keeps the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import orjson

from state_lib.capacity.assess import Measured, assess
from state_lib.capacity.model import Capacity, point_of
from state_lib.capacity.page import page
from state_lib.checks.what_if import Rates
from state_lib.errors import StorageUnavailable
from state_lib.gathering.application import gather
from state_lib.gathering.measures import restore_rates, stores_measured
from state_lib.kafka import Kafka
from state_lib.reports.folder import Reports, new_report
from state_lib.snapshots.listing import FILES, MANIFESTS, stored_tasks, task_storage

if TYPE_CHECKING:
    from state_lib.config import Settings

_AT_ONCE = 16
_LEAST_S = 1.0
"""A drill that took less says nothing of a rate."""


@dataclass(frozen=True)
class Kept:
    """Where a report was put: addresses of its page and of its figures."""

    id: str
    page: str
    figures: str


def capacity(settings: Settings, app: str, *, read_logs: bool = True) -> Capacity:
    """Gather and assess.

    Args:
        settings: where brokers, hosts, storage and earlier reports are.
        app: the application.
        read_logs: read changelogs at some places; without it their bytes are not known.

    Raises:
        NotFound: no such application.
        Unavailable: Kafka or storage is away.
    """
    kafka = Kafka.of(settings)
    facts = gather(settings, kafka, app, read_logs=read_logs)
    rates, rates_from = _rates(settings, kafka, app)
    earlier = [point_of(said) for said in earlier_reports(Reports.of(settings, app, "capacity"))]
    return assess(
        facts,
        Measured(
            stores_measured(kafka, facts) if read_logs else (),
            rates,
            rates_from,
            _stored(settings.snapshots_url, app),
            earlier,
        ),
    )


def keep(settings: Settings, found: Capacity) -> Kept:
    """Keep a report as a page and as figures, and the last ones of those before.

    Raises:
        StorageUnavailable: naming the URL.
    """
    reports, name = Reports.of(settings, found.app, "capacity"), new_report()
    # The figures last, so that there is a page for all figures that are listed.
    reports.write(f"{name}.html", page(found).encode())
    reports.write(f"{name}.json", orjson.dumps(found.to_json()))
    reports.prune(settings.reports_kept)
    return Kept(name, reports.url(f"{name}.html"), reports.url(f"{name}.json"))


def newest_page(settings: Settings, app: str) -> bytes | None:
    """The page that was kept last; None before the first. Raises StorageUnavailable."""
    reports = Reports.of(settings, app, "capacity")
    return next((p for i in reports.ids() if (p := reports.read(f"{i}.html")) is not None), None)


def earlier_reports(reports: Reports) -> list[Mapping[str, Any]]:
    """Figures that were kept, the oldest first; what cannot be read is left out."""
    return list(_newest_first(reports))[::-1]


def _newest_first(reports: Reports) -> Iterator[Mapping[str, Any]]:
    for name in reports.ids():
        try:
            yield orjson.loads(reports.read(f"{name}.json") or b"")
        except orjson.JSONDecodeError:
            continue


def _rates(settings: Settings, kafka: Kafka, app: str) -> tuple[Rates, str]:
    """From restores that hosts report, else from the last drill, else from a benchmark."""
    rates = restore_rates(kafka, app)
    if rates.seen:
        return rates, f"the last {rates.seen} restores of hosts"
    for said in _newest_first(Reports.of(settings, app, "drill")):
        drilled = drilled_rates(rates, said.get("result") or {})
        if drilled is not None:
            return drilled, f"the restore drill {said['id']}"
    return rates, "a benchmark: no restore or drill of this application was seen yet"


def drilled_rates(rates: Rates, drill: Mapping[str, Any]) -> Rates | None:
    """What a drill measured, where it was long enough to measure anything. Pure."""
    tasks = [t for t in drill.get("tasks", ()) if t["error"] is None]
    fetched, records = (sum(t[n] for t in tasks) for n in ("fetched_bytes", "records"))
    fetch_s, replay_s = (sum(t[n] for t in tasks) for n in ("fetch_s", "replay_s"))
    if fetch_s > _LEAST_S and fetched:
        rates = replace(rates, fetch_bytes_per_s=fetched / fetch_s, seen=len(tasks))
    if replay_s > _LEAST_S and records:
        per_s = records / replay_s
        rates = replace(rates, full_records_per_s=per_s, tail_records_per_s=per_s, seen=len(tasks))
    return rates if rates.seen else None


def _stored(url: str, app: str) -> dict[int, tuple[int, int]]:
    """Partition → bytes of all its snapshots, files that they share once, and how many."""

    def one(partition: int) -> tuple[int, int]:
        storage = task_storage(url, app, partition)
        size = sum(stored.size for stored in storage.listing(FILES).values())
        return size, sum(name.endswith(".json") for name in storage.listing(MANIFESTS))

    try:
        found = stored_tasks(url, app)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return dict(zip(found, pool.map(one, found), strict=True))
    except StorageUnavailable:
        return {}  # a note of the report says so
