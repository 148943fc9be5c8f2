"""A report as one HTML page that needs nothing else: no script, no other address.

It is made of elements, so that no name or message can become markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from xml.etree.ElementTree import Element, SubElement, tostring

from state_lib.capacity.chart import Format, bars, lines
from state_lib.capacity.model import Capacity, Growth, TaskCapacity
from state_lib.specs import DAY_MS
from state_lib.times import iso
from state_lib.words import about, size, span

MOST_BARS = 40
MOST_LINES = 6
TASK_COLUMNS = (
    "task",
    "host",
    "records",
    "directory",
    "grows by",
    "changelogs",
    "newest snapshot",
    "age",
    "all snapshots",
    "restore",
)
STYLE = """
:root { color-scheme: light dark; font: 14px/1.5 system-ui, sans-serif;
  --ink: light-dark(#1c2430, #e4e8ee); --soft: light-dark(#6b7686, #95a1b3);
  --grid: light-dark(#dde3ea, #333d4b);
  --s0: light-dark(#2563a8, #6aa5e8); --s1: light-dark(#c2571a, #f0955a);
  --s2: light-dark(#2f7d4f, #6cc592); --s3: light-dark(#7a4fa3, #b78fe0);
  --s4: light-dark(#a8872b, #dcbf62); --s5: light-dark(#98344f, #e37f9b) }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: var(--ink) }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2.2rem }
p, figcaption, small { color: var(--soft) } figure { margin: 0 }
dl { display: flex; flex-wrap: wrap; gap: .5rem 2.5rem } dd { margin: 0; font-size: 1.3rem }
dt { color: var(--soft) }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { text-align: right; padding: .2rem .6rem; border-bottom: 1px solid var(--grid) }
th:first-child, td:first-child { text-align: left }
svg { width: 100%; height: auto } svg text { font-size: 10px; fill: var(--soft) }
.grid { stroke: var(--grid) } polyline, .bound { fill: none; stroke-width: 1.6 }
.bound { stroke-dasharray: 5 4 } .warn { color: var(--s1) } .scroll { overflow-x: auto }
""" + "\n".join(f".s{i} {{ fill: var(--s{i}) }} .l{i} {{ stroke: var(--s{i}) }}" for i in range(6))


def page(found: Capacity) -> str:
    """The whole document."""
    html = Element("html", {"lang": "en"})
    head = SubElement(html, "head")
    SubElement(head, "meta", {"charset": "utf-8"})
    SubElement(head, "meta", {"name": "viewport", "content": "width=device-width"})
    SubElement(head, "title").text = f"Capacity of {found.app}"
    SubElement(head, "style").text = STYLE
    body = SubElement(html, "body")
    SubElement(body, "h1").text = f"Capacity of {found.app}"
    SubElement(body, "p").text = f"As of {iso(found.at)}. Times are UTC."
    _totals(body, found)
    for note in found.notes:
        SubElement(body, "p", {"class": "warn"}).text = note
    _disks(body, found)
    _stores(body, found)
    _tasks(body, found)
    _cells(body, found)
    return "<!doctype html>\n" + tostring(html, encoding="unicode", method="html")


def _totals(body: Element, found: Capacity) -> None:
    names = {
        "records": "records",
        "bytes": "on hosts' disks",
        "memory_bytes": "in memory stores",
        "changelog_bytes": "in changelogs",
        "stored_bytes": "in snapshots",
    }
    listed = SubElement(body, "dl")
    for key, name in names.items():
        value, pair = found.totals[key], SubElement(listed, "div")
        SubElement(pair, "dt").text = name
        SubElement(pair, "dd").text = f"{value:,}" if key == "records" else size(value)
    SubElement(body, "p").text = "Changelogs: one replica, before compression, by samples."


def _disks(body: Element, found: Capacity) -> None:
    told = [h for h in found.hosts if h.disk_total]
    used = {h.host: h.used for h in told if h.used}
    shown = dict(list(used.items())[:MOST_LINES])
    limits = {h.host: float(h.disk_total) for h in told}
    _figure(body, "Disks", lines("Bytes used on hosts' disks", shown, size, limits))
    _table(
        body,
        ["host", "total", "free", "full in"],
        [[h.host, size(h.disk_total), size(h.disk_free), ahead(h.growth)] for h in told],
    )


def _stores(body: Element, found: Capacity) -> None:
    records = {
        s.store: [(h.at, float(h.records.get(s.store, 0))) for h in found.history]
        for s in found.stores[:MOST_LINES]
    }
    chart = lines("Records by store, from one report to the next", records, _count)
    _figure(body, "Stores", chart, "A point for each report that is kept.")
    _table(
        body,
        [
            "store",
            "kind",
            "records",
            "grows by",
            "full in",
            "written",
            "changelog",
            "records in it",
        ],
        [
            [
                s.store,
                f"{s.kind}, {s.backend}",
                f"{s.records:,}",
                _growing(s.growth, _count if not s.bound else size),
                ahead(s.growth) if s.bound else "",
                f"{s.written_per_s:,.1f}/s",
                size(s.changelog_bytes),
                f"{s.changelog_records:,}",
            ]
            for s in found.stores
        ],
    )


def _tasks(body: Element, found: Capacity) -> None:
    largest = sorted(found.tasks, key=lambda t: (-t.bytes, t.partition))[:MOST_BARS]
    largest.sort(key=lambda t: t.partition)
    left = len(found.tasks) - len(largest)
    more = f"The {MOST_BARS} largest; {left} more are in the table. " if left else ""
    kept = ["directory", "newest snapshot", "changelogs"]
    _figure(
        body,
        "Tasks: bytes",
        bars("Bytes by task", kept, {_name(found, t): _bytes(t) for t in largest}, size),
        more,
    )
    taken = {_name(found, t): (t.from_snapshot_s, t.from_changelog_s) for t in largest}
    chart = bars("Seconds to restore", ["from the snapshot", "from changelogs"], taken, _seconds)
    rates = found.rates
    by = (
        f"{more}Estimated at {rates.tail_records_per_s:,.0f} records/s and "
        f"{size(rates.fetch_bytes_per_s)}/s, from {found.rates_from}."
    )
    _figure(body, "Tasks: seconds to restore", chart, by)
    _table(
        body,
        TASK_COLUMNS,
        [_row(found, t) for t in found.tasks],
    )


def _row(found: Capacity, t: TaskCapacity) -> list[str]:
    aged = "" if t.snapshot_age_ms is None else span(t.snapshot_age_ms)
    by_snapshot = "" if t.from_snapshot_s is None else f"{_seconds(t.from_snapshot_s)}, "
    return [
        _name(found, t),
        t.host or "none",
        f"{t.records:,}",
        size(t.bytes),
        _growing(t.growth, size),
        size(t.changelog_bytes),
        size(t.snapshot_bytes) if t.snapshots else "none",
        aged,
        f"{size(t.stored_bytes)} in {t.snapshots}",
        by_snapshot + _seconds(t.from_changelog_s),
    ]


def _cells(body: Element, found: Capacity) -> None:
    folded = SubElement(body, "details")
    SubElement(folded, "summary").text = "Every store of every task"
    _table(
        folded,
        ["task", "store", "records", "in the changelog", "changelog", "memory"],
        [
            [
                str(c.partition),
                c.store,
                f"{c.records:,}",
                f"{c.changelog_records:,}",
                size(c.changelog_bytes),
                f"{size(c.memory_bytes)} of {size(c.max_bytes)}" if c.max_bytes else "",
            ]
            for c in found.cells
        ],
    )


def ahead(growth: Growth) -> str:
    """How long until something is full, with its uncertainty."""
    if growth.full_days is None:
        return "not filling"
    latest = inf if growth.latest is None else growth.latest
    return about(*(d * DAY_MS for d in (growth.full_days, growth.earliest or 0, latest)))


def _growing(growth: Growth, shown: Format) -> str:
    if growth.per_day is None or growth.error is None:
        return "not known yet"
    sign = "-" if growth.per_day < 0 else ""
    return f"{sign}{shown(abs(growth.per_day))} ± {shown(growth.error)} a day"


def _figure(body: Element, title: str, chart: Element, caption: str = "") -> None:
    SubElement(body, "h2").text = title
    figure = SubElement(body, "figure")
    figure.append(chart)
    if caption:
        SubElement(figure, "figcaption").text = caption


def _table(body: Element, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    table = SubElement(SubElement(body, "div", {"class": "scroll"}), "table")
    line = SubElement(SubElement(table, "thead"), "tr")
    for name in header:
        SubElement(line, "th").text = name
    below = SubElement(table, "tbody")
    for row in rows:
        line = SubElement(below, "tr")
        for value in row:
            SubElement(line, "td").text = value


def _bytes(t: TaskCapacity) -> tuple[float, float | None, float]:
    return t.bytes, t.snapshot_bytes if t.snapshots else None, t.changelog_bytes


def _name(found: Capacity, task: TaskCapacity) -> str:
    return f"{found.app}/{task.partition}"


def _count(number: float) -> str:
    return f"{number:,.0f}"


def _seconds(number: float) -> str:
    return f"{number:,.1f} s"
