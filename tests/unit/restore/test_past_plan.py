"""What a plan to go back in time says of time and disk, to people and to programs."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from state_lib.apps.past import Journey
from state_lib.cli._restore_past import show_past
from state_lib.errors import InvalidRequest
from state_lib.protocol.marker import Marker
from state_lib.restore.past import PastPlan, _check_ticks, _seconds
from state_lib.snapshots.manifest import FileEntry, Manifest
from state_lib.stores.digest import StoreDigest

MARKER = Marker(epoch=1, batch_number=4, owner="host-1", written_at=1_000)


def manifest(entries: int, size: int) -> Manifest:
    held = {name: str(StoreDigest(7, entries // 2)) for name in ("kv", "win")}
    files = (FileEntry("1.sst", size, "0" * 64),)
    return Manifest("x", "app", 0, MARKER, {}, {}, (), files, held, 1_000)


def plan(free: int = 10**12, **more: object) -> PastPlan:
    told = {
        "task": "app/0", "snapshot": "x", "epoch": 1, "n": 4, "written_at": 1_000,
        "positions": {}, "topic_ids": {}, "recorded": -1, "clock": -1, "from_epoch": 1,
        "from_n": 9, "published": {}, "records": 60, "bytes": 120_000_000, "republish": False,
        "codes": [], "discards": ["the state of commit 1/9"],
    }  # fmt: skip
    return replace(PastPlan.from_json({**told, **more}), free_bytes=free)


def test_seconds_are_those_of_the_bytes_and_of_the_entries() -> None:
    small = _seconds(manifest(0, 0))
    assert 0 < small < 1
    assert _seconds(manifest(0, 1_000_000_000)) == pytest.approx(small + 10)
    assert _seconds(manifest(3_000_000, 0)) == pytest.approx(small + 10)


def test_ticks_are_of_the_topic_that_they_were_recorded_in() -> None:
    then = plan(recorded=7, recorded_in="log")
    _check_ticks(then, "app-progress", "log", 8)
    with pytest.raises(InvalidRequest, match="begins at offset 9, behind 7"):
        _check_ticks(then, "app-progress", "log", 9)
    with pytest.raises(InvalidRequest, match="app-progress was made anew"):
        _check_ticks(then, "app-progress", "another", 0)
    _check_ticks(plan(), "app-progress", "log", 0)


@pytest.fixture
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


@pytest.mark.usefixtures("_wide")
def test_people_see_seconds_and_disk(capsys: pytest.CaptureFixture[str]) -> None:
    one = plan(free=1_000_000_000, seconds=12.5, needed_bytes=240_000_000)
    there = replace(one, task="app/1", is_back=True, discards=())
    show_past(Journey("app", (one, there), ()), as_json=False)
    out = capsys.readouterr().out
    assert "seconds" in out
    assert "12.5" in out
    assert "app/0: disk: at most about 240 MB needed, 1.0 GB free" in out
    assert "app/1: disk" not in out, "nothing is done there"


def test_programs_see_them_too(capsys: pytest.CaptureFixture[str]) -> None:
    one = plan(free=5, seconds=12.5, needed_bytes=7)
    show_past(Journey("app", (one,), ()), as_json=True)
    (told,) = orjson.loads(capsys.readouterr().out)["plans"]
    assert (told["seconds"], told["needed_bytes"], told["free_bytes"]) == (12.5, 7, 5)
    assert PastPlan.from_json(told) == one


@pytest.mark.usefixtures("_wide")
def test_a_host_of_the_version_before_does_not_say(capsys: pytest.CaptureFixture[str]) -> None:
    show_past(Journey("app", (plan(free=0),), ()), as_json=False)
    out = capsys.readouterr().out
    assert "app/0 loses" in out
    assert "disk" not in out
