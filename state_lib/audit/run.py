"""The audit: take hold of what is there, recompute what must be there, compare both."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from state_lib.audit.actual import (
    Entries,
    comparable,
    dead_letter_counts,
    dropped_counts,
    expected_output,
    output_entries,
    store_entries,
)
from state_lib.audit.compare import by_key, compare, rows_of, unordered
from state_lib.audit.report import AuditReport, Comparison
from state_lib.audit.standing import take_hold
from state_lib.changelog.claims import topology_of
from state_lib.changelog.reader import read
from state_lib.changelog.topics import progress_topic
from state_lib.config import Settings
from state_lib.errors import ConfigurationError
from state_lib.kafka import Kafka, Partition, ends, require, starts
from state_lib.protocol.positions import Positions
from state_lib.specs import Topology

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Recompute = Callable[[Any, Any, Sequence[Mapping[str, Any]]], Mapping[str, Any]]
"""``recompute(spark, rows, batches)``: what must be there, computed without state_lib.

``rows`` is a DataFrame of the source records up to the markers (Spark's Kafka columns); ``batches``
are the progress records as plain dicts in log order: ``epoch``, ``n``, ``from``, ``to``, ``clock``,
``now`` and ``max_future_ms``. Returns a mapping with

- ``stores``: name → rows (Spark or pandas DataFrame, or dicts) with ``key`` (of several columns a
  struct of them, in their order), ``start`` (windows only), ``timestamp`` and the stored fields
  (one unnamed value: ``value``); expired windows may be among them;
- ``digests`` (optional): name → digest of the store's bytes, as ``<32 hex digits>/<entries>``;
- ``dropped``: reason → records;
- ``dead_letters``: ``(topic, partition, offset, reason)`` of every record that cannot be used;
- ``rising`` (optional): output topic → fields whose sum grows with every record of a key.
"""


_BEHIND = (
    "outputs and dead letters were not compared: the application went back in time, and has "
    "{records:,} records to read again until it comes to where they were written"
)


@dataclass(frozen=True)
class Totals:
    """Totals straight from the origin of the data, without Kafka and Spark.

    ``expected()`` names among others ``records``: they are compared only when the source topics
    hold so many. ``actual(stores)`` gets each store as a pandas DataFrame.
    """

    expected: Callable[[], Mapping[str, Any]]
    actual: Callable[[Mapping[str, Any]], Mapping[str, Any]]


def audit(  # noqa: PLR0913 - what is audited, against what, and who is told
    app: str,
    settings: Settings,
    recompute: Recompute,
    *,
    totals: Totals | None = None,
    spark: SparkSession | None = None,
    wait_s: float = 60.0,
    tell: Callable[[str], None] = lambda _: None,
) -> AuditReport:
    """Compare every entry of an application with a recompute.

    Args:
        app: the application's id; its job may be running.
        settings: where brokers and hosts are.
        recompute: see `Recompute`.
        totals: see `Totals`.
        spark: a session to use; else one is opened, and stopped at the end.
        wait_s: how long to wait for a moment at which all tasks stand at one place.
        tell: called at the start of each phase.

    Raises:
        NotFound: no such application.
        Unavailable: no such moment came, or brokers or hosts are away.
        ConfigurationError: the source no longer holds what was read.
    """
    clock = _Stopwatch(tell)
    kafka = Kafka.of(settings)
    topology = topology_of(kafka, app)
    with clock("gathering"):
        standing = take_hold(kafka, settings, topology, wait_s)
        stores = {s.name: store_entries(standing, s) for s in topology.stores}
        behind = standing.behind_outputs
        letters = None if behind else dead_letter_counts(kafka, standing, topology)
        batches = read_batches(kafka, app, int(settings.max_future_s * 1000))
        begin = first_positions(kafka, topology, batches, standing.positions)
    with ExitStack() as stack:
        with clock("Spark's start"):
            session = stack.enter_context(_session(app, settings, spark))
        with clock("recompute"):
            rows = _source(session, settings, topology, begin, standing.positions)
            expected = recompute(session, rows, batches)
    with clock("comparing"):
        rising: Mapping[str, Sequence[str]] = expected.get("rising", {})
        told, unlike = comparable(topology)
        outputs = {
            o.topic: output_entries(kafka, standing, topology, o, rising.get(o.topic, ()))
            for o in (() if behind else told)
        }
        found = assess(
            topology,
            standing.stream_time_ms,
            expected,
            Actual(stores, outputs, letters, dropped_counts(standing)),
        )
        records = sum(standing.positions.values()) - sum(begin.values())
        against, notes = _totals(totals, records, stores)
        if behind:
            notes.append(_BEHIND.format(records=behind))
        else:
            notes += unlike
    return AuditReport(
        app=app,
        positions=standing.positions.to_json(),
        stream_time_ms=standing.stream_time_ms,
        records=records,
        comparisons=(*found, *against),
        notes=tuple(notes),
        seconds=clock.seconds,
    )


@dataclass(frozen=True)
class Actual:
    """What is there: per store, per output topic, letters with their counts, drops per reason.

    Outputs that are not in it are not compared, nor letters that are None.
    """

    stores: Mapping[str, Entries]
    outputs: Mapping[str, Entries]
    letters: Mapping[tuple[str, int, int, str], int] | None
    dropped: Mapping[str, int]


def assess(
    topology: Topology, clock: int, expected: Mapping[str, Any], actual: Actual
) -> list[Comparison]:
    """Compare everything. Pure: the recompute's answer and what is there in, comparisons out."""
    out: list[Comparison] = []
    all_rows = {name: by_key(rows_of(frame)) for name, frame in expected["stores"].items()}
    digests = expected.get("digests", {})
    for name, entries in actual.stores.items():
        spec = topology.store(name)
        wanted = all_rows.get(name, {})
        if spec is not None and spec.is_window:
            oldest = clock - spec.retention_ms
            wanted = {k: v for k, v in wanted.items() if (k[1] or 0) > oldest}
        complete = len(wanted) == len(all_rows.get(name, {}))
        pair = (digests.get(name) if complete else None, entries.digest)
        out.append(
            compare(
                "store",
                name,
                unordered(wanted, spec and spec.value_serde),
                unordered(entries.rows, spec and spec.value_serde),
                doubled=entries.doubled,
                digests=pair,
            )
        )
    for output in topology.outputs:
        spec = topology.store(output.store)
        sent = actual.outputs.get(output.topic)
        if spec is None or sent is None:
            continue
        wanted_output = expected_output(all_rows.get(output.store, {}), spec)
        out.append(compare("output", output.topic, wanted_output, sent.rows, doubled=sent.doubled))
    drops = {reason: n for reason, n in expected["dropped"].items() if n}
    out.append(compare("dropped", "", drops, actual.dropped))
    if actual.letters is not None:
        letters = {tuple(letter): 1 for letter in expected["dead_letters"]}
        out.append(compare("dead letters", "", letters, actual.letters))
    return out


def read_batches(kafka: Kafka, app: str, max_future_ms: int) -> list[dict[str, Any]]:
    """The batches as they were recorded, in log order; ``max_future_ms`` where they have none."""
    place = (progress_topic(app), 0)
    first, end = starts(kafka.admin(), [place])[place], ends(kafka.admin(), [place])[place]
    records = (
        orjson.loads(message.value() or b"{}")
        for messages in read(kafka, place[0], 0, first, end)
        for message in messages
    )
    # Records with a kind are no batches but restores.
    return [{"max_future_ms": max_future_ms} | one for one in records if "kind" not in one]


def first_positions(
    kafka: Kafka,
    topology: Topology,
    batches: Sequence[Mapping[str, Any]],
    positions: Mapping[Partition, int],
) -> dict[Partition, int]:
    """Where the application began to read, from its batches.

    Raises:
        ConfigurationError: a source no longer holds records from there on.
    """
    begin: dict[Partition, int] = {}
    for batch in batches:
        for place, offset in Positions.of(batch["from"]).items():
            begin[place] = min(offset, begin.get(place, offset))
    begin = {p: min(begin.get(p, at), at) for p, at in positions.items()}
    require(kafka.admin(), topology.sources)
    gone = {p: n for p, n in starts(kafka.admin(), begin).items() if n > begin[p] < positions[p]}
    if gone:
        raise ConfigurationError(
            f"sources of {topology.app!r} no longer hold what was read: logs start at {gone}, the "
            f"application began at {dict(begin)}. An audit needs the whole of them"
        )
    return begin


def _source(
    spark: SparkSession,
    settings: Settings,
    topology: Topology,
    begin: Mapping[Partition, int],
    end: Mapping[Partition, int],
) -> DataFrame:
    from state_lib.spark.session import kafka_options, read_range  # noqa: PLC0415 - needs pyspark

    options = kafka_options(settings, list(topology.sources))
    bounds = [orjson.dumps(Positions(at).to_json()).decode() for at in (begin, end)]
    return read_range(spark, options, bounds[0], bounds[1])


@contextmanager
def _session(app: str, settings: Settings, given: SparkSession | None) -> Iterator[SparkSession]:
    from state_lib.spark.session import open_session  # noqa: PLC0415 - needs pyspark

    if given is not None:
        yield given
        return
    with _stderr_to(settings.home / "logs" / f"audit-{app}.log"):
        spark = open_session(f"audit-{app}", settings, spark_ui_enabled="false")
    spark.conf.set("spark.sql.shuffle.partitions", "4")  # not 200: adaptive execution is off
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """What a JVM that is started meanwhile has to say goes to a file, for as long as it lives."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with path.open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _totals(
    totals: Totals | None, records: int, stores: Mapping[str, Entries]
) -> tuple[list[Comparison], list[str]]:
    if totals is None:
        return [], []
    import pandas as pd  # noqa: PLC0415 - only where totals are compared

    expected = dict(totals.expected())
    if expected["records"] != records:
        seen = f"{records:,} of {expected['records']:,}"
        return [], [f"totals were not compared: the source holds {seen} records"]
    frames = {
        name: pd.DataFrame([{"key": k, "start": s} | r for (k, s), r in e.rows.items()])
        for name, e in stores.items()
    }
    return [compare("totals", "", expected, dict(totals.actual(frames)))], []


class _Stopwatch:
    """Seconds per phase."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.seconds: dict[str, float] = {}
        self._tell = tell

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        started = time.monotonic()
        self._tell(phase)
        try:
            yield
        finally:
            self.seconds[phase] = round(time.monotonic() - started, 2)
