"""Capacity reports: figures of facts, growth, charts, the page. All pure."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from state_lib.capacity.assess import Measured, assess
from state_lib.capacity.chart import bars, lines, scale
from state_lib.capacity.growth import growth
from state_lib.capacity.measure import drilled_rates
from state_lib.capacity.model import Capacity, Growth, Point, point_of
from state_lib.capacity.page import MOST_BARS, ahead, page
from state_lib.checks.facts import Facts, HostSeen, StoreSeen, TaskSeen
from state_lib.checks.what_if import Rates
from state_lib.specs import DAY_MS, Topology
from tests.support.facts import HOUR, KV, KV_LOG, NOW, sample, well
from tests.unit.checks.test_what_if import STORE

RATES = Rates(100_000, 50_000, 1000.0, 0.5)
GB = 10**9


def assessed(facts: Facts | None = None, *earlier: Point, rates: Rates = RATES) -> Capacity:
    pace = replace(STORE, store="kv", per_s=0.1, record_bytes=100.0)
    stored = {0: (3000, 2), 1: (1000, 1)}
    return assess(facts or well(), Measured([pace], rates, "a test", stored, earlier))


def test_a_report_counts_stores_tasks_and_hosts() -> None:
    found = assessed()
    kv, win, mem = found.stores
    assert (kv.records, kv.changelog_records, kv.changelog_bytes) == (200, 2000, 2000 * 112)
    assert (win.kind, kv.written_per_s, win.written_per_s) == ("window", 0.1, 0.0)
    assert (mem.memory_bytes, mem.bound) == (1000, 2000)
    first, second = found.tasks
    assert (first.partition, first.host, first.bytes, first.records) == (0, "host-1", 1000, 210)
    assert (first.stored_bytes, first.snapshots, second.snapshots) == (3000, 2, 1)
    assert found.totals["bytes"] == 2000
    assert len(found.cells) == 6
    assert [h.disk_free for h in found.hosts] == [6 * 10**11] * 2
    assert found.notes == ()


def test_seconds_to_restore_follow_from_rates() -> None:
    first = assessed().tasks[0]
    # 1,000 bytes at 1,000/s; of kv's 1,000 records here, half of 0.1/s for an hour
    assert first.snapshot_age_ms == HOUR
    assert first.from_snapshot_s == pytest.approx(0.5 + 1.0 + 180 / 50_000, abs=0.01)
    assert first.from_changelog_s == pytest.approx(0.5 + 3000 / 100_000, abs=0.01)
    facts = well()
    assert facts.snapshots is not None
    newest = dict(facts.snapshots.newest)
    newest[0] = replace(newest[0], why_not="its topic was made again")
    del newest[1]
    unusable = assessed(replace(facts, snapshots=replace(facts.snapshots, newest=newest)))
    assert [t.from_snapshot_s for t in unusable.tasks] == [None, None]
    assert [t.snapshot_age_ms for t in unusable.tasks] == [HOUR, None]


def test_a_partition_that_was_not_sampled_is_estimated_by_the_others() -> None:
    facts = well()
    samples = {**(facts.samples or {}), KV_LOG: (sample(1, records=500, record_bytes=38.0),)}
    kv = [c for c in assessed(replace(facts, samples=samples)).cells if c.store == "kv"]
    assert [(c.changelog_records, c.changelog_bytes) for c in kv] == [(500, 500 * 50)] * 2
    blind = assessed(replace(facts, samples=None))
    assert [c.changelog_records for c in blind.cells if c.store == "kv"] == [1000, 1000]


def test_what_is_not_known_is_said() -> None:
    facts = well()
    away = HostSeen("host-2", "it does not answer")
    assert facts.snapshots is not None
    silent = replace(facts.snapshots, away="no such bucket")
    bad = {KV_LOG: (sample(error="a broker went away"),)}
    facts = replace(facts, hosts=(facts.hosts[0], away), snapshots=silent, samples=bad)
    notes = assessed(facts).notes
    assert len(notes) == 4
    assert "host host-2 is away" in notes[0]
    assert notes[1] == "no host holds tasks 1"
    assert "no such bucket" in notes[2]
    assert "a broker went away" in notes[3]


def test_growth_comes_from_reports_of_before() -> None:
    earlier = [
        Point(NOW - d * DAY_MS, {0: 1000 - 100 * d, 1: 1000}, {"kv": 200 - 10 * d}, {"mem": 0})
        for d in range(5, 0, -1)
    ]
    found = assessed(None, *earlier)
    assert found.tasks[0].growth == Growth(100.0, 0.0)
    assert found.tasks[1].growth == Growth(0.0, 0.0)
    assert found.stores[0].growth.per_day == pytest.approx(10.0)
    assert len(found.history) == 6
    assert assessed().tasks[0].growth == Growth(), "one report tells nothing"
    said = found.to_json()
    assert "history" not in said
    assert point_of(said) == found.history[-1]


def test_a_bound_is_reached_within_some_days() -> None:
    noisy = [(NOW + i * HOUR, 10 * GB + i * GB // 24 + (i % 3) * GB // 100) for i in range(96)]
    found = growth(noisy, 10 * GB)
    assert found.per_day == pytest.approx(GB, rel=0.05)
    assert found.full_days is not None
    assert found.earliest is not None
    assert found.latest is not None
    assert found.earliest < found.full_days < found.latest
    assert found.full_days == pytest.approx(10, rel=0.05)
    assert ahead(replace(found, earliest=8.5, latest=12.24)) == "10 d (8.5 d to 12.2 d)"
    assert ahead(Growth(1.0, 0.1, 0.5 / 24, 0.4 / 24, None)) == "30 min (24 min to never)"
    falling = growth([(at, -used) for at, used in noisy], 10 * GB)
    assert (falling.full_days, ahead(falling)) == (None, "not filling")


def test_rates_of_a_drill_count_where_it_took_long_enough() -> None:
    task = {
        "error": None,
        "fetched_bytes": 10**9,
        "fetch_s": 4.0,
        "records": 10**6,
        "replay_s": 2.0,
    }
    broken = {"error": {"code": "x"}, "fetched_bytes": 1, "fetch_s": 9, "records": 1, "replay_s": 9}
    found = drilled_rates(RATES, {"tasks": [task, broken]})
    assert found == Rates(500_000, 500_000, 250e6, 0.5, 1)
    short = task | {"fetch_s": 0.1}
    assert drilled_rates(RATES, {"tasks": [short]}) == Rates(500_000, 500_000, 1000.0, 0.5, 1)
    assert drilled_rates(RATES, {"tasks": [short | {"replay_s": 0.1}]}) is None
    assert drilled_rates(RATES, {}) is None


@pytest.mark.parametrize(
    ("most", "ticks"),
    [
        (0, [0, 1]),
        (4, [0, 1, 2, 3, 4]),
        (95, [0, 25, 50, 75, 100]),
        (1e12, [0, 2.5e11, 5e11, 7.5e11, 1e12]),
    ],
)
def test_scales_are_round_and_reach_the_most(most: float, ticks: list[float]) -> None:
    assert scale(most) == pytest.approx(ticks)


def test_bars_are_as_long_as_their_values() -> None:
    chart = bars("Bytes", ["a", "b"], {"x": (50.0, None), "y": (100.0, 0.0)}, lambda v: f"{v:g} B")
    drawn = [r for r in chart.iter("rect") if r.find("title") is not None]
    wide = [float(r.get("width", "-1")) for r in drawn]
    assert wide[1] == wide[3] == 0
    assert wide[2] == 2 * wide[0] > 0
    said = [t.text for t in chart.iter("title")]
    assert said == ["x, a: 50 B", "x, b: not known", "y, a: 100 B", "y, b: 0 B"]


def test_lines_keep_to_their_chart() -> None:
    points = [(NOW + i * HOUR, 10.0 * i) for i in range(10)]
    chart = lines("Used", {"h": points, "one": points[:1]}, lambda v: f"{v:g}", {"h": 200.0})
    (line,) = chart.iter("polyline")
    at = [tuple(map(float, pair.split(","))) for pair in line.get("points", "").split()]
    assert len(at) == 10
    assert [x for x, _ in at] == sorted(x for x, _ in at)
    assert [y for _, y in at] == sorted((y for _, y in at), reverse=True)
    (bound,) = [e for e in chart.iter("line") if "bound" in e.get("class", "")]
    assert float(bound.get("y1", "")) < at[-1][1], "the bound lies above"
    assert len(list(chart.iter("circle"))) == 1
    empty = lines("Used", {}, str)
    assert "nothing was measured yet" in [t.text for t in empty.iter("text")]


class Tags(HTMLParser):
    """Tags and the addresses in them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags, self.addresses = list[str](), list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [v or "" for k, v in attrs if k in ("src", "href", "xlink:href")]


def test_a_page_needs_nothing_else_and_shows_everything() -> None:
    html = page(assessed())
    seen = Tags()
    seen.feed(html)
    assert html.startswith("<!doctype html>")
    assert seen.addresses == []
    assert "script" not in seen.tags
    assert "url(" not in html
    assert "@import" not in html
    assert seen.tags.count("svg") == 4
    for shown in ("app/0", "app/1", "host-1", "kv", "win", "mem", "a test", "600.0 GB"):
        assert shown in html, shown


def test_names_and_messages_never_become_markup() -> None:
    evil = "</style><script>alert('x')</script>"
    facts = well(hosts=(HostSeen(evil, evil), HostSeen("h", None, (), 100, 50, ((NOW, 5),))))
    html = page(assessed(facts))
    assert evil not in html
    assert html.count("&lt;script&gt;") >= 2


def test_of_many_tasks_the_largest_are_drawn_and_all_are_listed() -> None:
    many = 300
    tasks = tuple(TaskSeen(p, bytes=p, stores={"kv": StoreSeen(p)}) for p in range(many))
    facts = replace(
        well(),
        topology=Topology("app", many, (KV,)),
        hosts=(HostSeen("host-1", None, tasks, 10**12, 10**11),),
    )
    html = page(assessed(facts))
    assert f"The {MOST_BARS} largest; {many - MOST_BARS} more are in the table." in html
    drawn = set(re.findall(r"<title>(app/\d+), directory", html))
    assert drawn == {f"app/{p}" for p in range(many - MOST_BARS, many)}
    assert all(f"<td>app/{p}</td>" in html for p in range(many))
