"""SIGKILL in every phase of a restore to the past: it has not begun, or whoever opens ends it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from state_lib.failpoints import NAMES
from state_lib.task import rewriting
from state_lib.task.past import Past
from tests.integration.conftest import MakeApp
from tests.support.apps import KV, TS, WIN, digests
from tests.support.past import MEM, Traveller, traveller

REPOSITORY = Path(__file__).parents[3]
OF_COMMAND = ("past.stopped", "past.claimed")
POINTS = [n for n in NAMES if n.startswith("past.") and n not in OF_COMMAND]
BEGUN = POINTS.index("past.after_begin")
QUICK = ["past.before_begin", "past.after_chunk", "past.after_marker"]


def go(one: Traveller, past: Past | None, points: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable, "-m", "tests.support.traveller",
            str(one.app.kafka.properties["bootstrap.servers"]), str(one.app.root / "host-1"),
            json.dumps(one.app.topology.to_json()), one.url,
            "" if past is None else json.dumps(past.to_json()),
        ],
        cwd=REPOSITORY,
        env=os.environ | {"HOLDFAST_FAILPOINTS": points, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )  # fmt: skip


def killed(one: Traveller, past: Past | None, points: str) -> None:
    done = go(one, past, points)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize("lost", [False, True], ids=["", "and the disk is lost"])
@pytest.mark.parametrize(
    "point", [pytest.param(p, marks=() if p in QUICK else pytest.mark.full) for p in POINTS]
)
def test_killed(make_app: MakeApp, point: str, lost: bool) -> None:
    one = traveller(make_app, [KV, TS, WIN, MEM])
    then = one.commits(range(3))
    taken = one.snapshot()
    now = one.commits(range(3, 11))
    one.task.close()
    past = one.request(taken.id)
    killed(one, past, f"{point}=kill")
    if lost:
        shutil.rmtree(one.task.path)
    if point == "past.after_chunk":  # and once more, by whoever opens it
        killed(one, None, f"{point}=kill@2")

    marker = one.task.open()
    begun = POINTS.index(point) >= BEGUN
    assert digests(one.task) == (then if begun else now)
    assert [p.name for p in one.task.path.parent.iterdir()] == ["0"]
    if not begun:
        marker = one.task.go_back(past)
    assert (marker.epoch, marker.batch_number) == (past.epoch, 1)
    assert one.task.go_back(past) == marker, "it is done"
    assert one.from_scratch() == then
    one.claim()
    assert one.commits(range(3, 11)) == now
    one.has_written(*range(11))


@pytest.mark.parametrize("begun", [False, True])
def test_killed_in_the_middle_of_its_fetch(make_app: MakeApp, begun: bool) -> None:
    """Of its first one, or of that of whoever ends it and finds nothing fetched."""
    one = traveller(make_app, [KV, WIN, MEM])
    then = one.commits(range(3))
    taken = one.snapshot()
    now = one.commits(range(3, 6))
    one.task.close()
    past, folder = one.request(taken.id), one.task.path.with_name("0.past")
    if begun:
        killed(one, past, "past.after_begin=kill")
        shutil.rmtree(folder)
    # the second file waits for the others, then the process dies
    killed(one, None if begun else past, "snapshot.fetch=sleep:0.5@2;snapshot.fetch=kill@2")
    assert 0 < sum(p.is_file() for p in folder.rglob("*")) < len(taken.files)

    marker = one.task.open()
    assert digests(one.task) == (then if begun else now)
    if not begun:
        marker = one.task.go_back(past)
    assert (marker.epoch, marker.batch_number) == (past.epoch, 1)
    assert not folder.exists()
    assert one.from_scratch() == then
    one.claim()
    assert one.commits(range(3, 6)) == now
    one.has_written(*range(6))


def test_killed_between_many_transactions(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written already is worked out anew, on another directory each time."""
    monkeypatch.setattr(rewriting, "CHUNK_RECORDS", 3)
    one = traveller(make_app, [WIN, KV])
    then = one.commits(range(3))
    taken = one.snapshot()
    now = one.commits(range(3, 11))
    past = one.request(taken.id)
    for passing in (2, 5, 9):
        with monkeypatch.context() as armed:
            armed.setattr("state_lib.failpoints._passed", Counter())
            armed.setenv("HOLDFAST_FAILPOINTS", f"past.after_chunk=raise@{passing}")
            with pytest.raises(RuntimeError):
                one.task.go_back(past)
        assert not one.task.is_open
        if passing == 5:
            shutil.rmtree(one.task.path)
    one.task.open()
    assert digests(one.task) == then
    assert one.from_scratch() == then
    one.claim()
    assert one.commits(range(3, 11)) == now
