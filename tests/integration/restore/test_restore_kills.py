"""SIGKILL in every phase of a restore: nothing half-valid is left, the next attempt is exact."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from state_lib.failpoints import NAMES
from state_lib.specs import StoreSpec
from state_lib.task import StateTask
from tests.integration.conftest import MakeApp
from tests.support.apps import HOUR, KV, TS, WIN, App, batch, digests, kv, win
from tests.support.counting import Counting
from tests.support.filled import filled
from tests.support.restorer import FLUSHED

REPOSITORY = Path(__file__).parents[3]
POINTS = [n for n in NAMES if n.startswith("restore.") and not n.endswith("_fetch")]
QUICK = ["restore.after_run", "restore.during_swap"]


def restorer(
    app: App, failpoints: str, source: str = "", **more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable, "-m", "tests.support.restorer",
            str(app.kafka.properties["bootstrap.servers"]), str(app.root / "host-1"),
            json.dumps(app.topology.to_json()), *([source] if source else []),
        ],
        cwd=REPOSITORY,
        env=os.environ
        | {"HOLDFAST_FAILPOINTS": failpoints, "PYTHONPATH": str(REPOSITORY)}
        | more,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )  # fmt: skip


def corrupt(task: StateTask) -> None:
    task.flush()
    task.close()
    (task.path / "CURRENT").write_text("MANIFEST-999999\n")


def check(app: App, before: object) -> Counting:
    listener = Counting()
    task = app.opened(listener=listener)
    assert digests(task) == before
    assert [p.name for p in task.path.parent.iterdir()] == ["0"], "nothing is left lying about"
    marker = task.commit(batch(task.marker, {"kv": kv(("new", "1"))}))
    task.close()
    task = app.opened()
    assert task.marker.batch_number == marker.batch_number
    return listener


@pytest.mark.parametrize(
    "point", [pytest.param(p, marks=() if p in QUICK else pytest.mark.full) for p in POINTS]
)
def test_killed_while_a_corrupt_directory_is_rebuilt(make_app: MakeApp, point: str) -> None:
    app = make_app([KV, WIN])
    task = filled(app)
    before = digests(task)
    corrupt(task)
    killed = restorer(app, f"{point}=kill")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    replayed = check(app, before)
    whole = POINTS.index(point) >= POINTS.index("restore.during_swap")
    assert (replayed.records == {}) is whole, "what was built and flushed is not built again"


@pytest.mark.full
@pytest.mark.parametrize("point", [p for p in POINTS if p != "restore.after_store"])
def test_killed_while_a_good_directory_is_replaced(make_app: MakeApp, point: str) -> None:
    app = make_app([KV, WIN])
    task = filled(app)
    before = digests(task)
    task.close()
    killed = restorer(app, f"{point}=kill", "changelog")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    replayed = check(app, before)
    assert replayed.records == {}, "the old directory or the new one: both are whole"


def test_killed_twice_then_left_alone(make_app: MakeApp) -> None:
    app = make_app([KV, WIN])
    task = filled(app)
    before = digests(task)
    corrupt(task)
    for point in ("restore.after_store", "restore.before_checkpoint"):
        assert restorer(app, f"{point}=kill").returncode == -signal.SIGKILL
    done = restorer(app, "")
    assert done.stdout.split() == ["0", "6"], done.stderr
    check(app, before)


@pytest.mark.parametrize("flushed", [{}, {FLUSHED: "yes"}], ids=["memory", "disk"])
def test_killed_while_a_tail_is_replayed(
    make_app: MakeApp, tmp_path: Path, flushed: dict[str, str]
) -> None:
    """Between two stores; on disk, the one holds more than the directory's checkpoint says."""
    app = make_app([KV, WIN])
    task = filled(app)
    task.close()
    shutil.copytree(task.path, tmp_path / "old")
    task.open()
    clock = task.marker.stream_time_ms
    puts = {"kv": kv(("new", "1"), ("k1", None)), "win": win(("w", clock, "1"))}
    task.commit(batch(task.marker, puts, clock=clock))
    before = digests(task)
    task.close()
    shutil.rmtree(task.path)
    shutil.copytree(tmp_path / "old", task.path)
    for _ in range(2):
        killed = restorer(app, "restore.after_store=kill", **flushed)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    replayed = check(app, before)
    assert replayed.records == {"kv": 2, "win": 1}, "the tails, again, and nothing else"


@pytest.mark.parametrize(
    "becomes",
    [
        pytest.param((replace(KV, backend="memory"), WIN), id="memory"),
        pytest.param((replace(TS, name="kv"), WIN), id="timestamps", marks=pytest.mark.full),
        pytest.param((KV, replace(WIN, retention_ms=20 * HOUR)), id="segments"),
    ],
)
def test_killed_while_a_store_gets_another_layout_then_rolled_back(
    make_app: MakeApp, becomes: tuple[StoreSpec, ...]
) -> None:
    """A store that was cleared does not count as the one that was there: it would stay empty."""
    app = make_app([KV, WIN])
    task = filled(app)
    before, declared = digests(task), app.topology
    task.flush()
    task.close()
    app.topology = replace(declared, stores=becomes)
    killed = restorer(app, "restore.after_store=kill")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    app.topology = declared
    check(app, before)
