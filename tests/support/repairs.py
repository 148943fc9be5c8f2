"""Repairs of lost topics: made, falsified, killed, and what tasks say meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from state_lib.errors import LogLost
from state_lib.kafka import ends
from state_lib.task import StateTask
from state_lib.task.repair import Chunk, Repair
from state_lib.task.repairing import repair_task
from tests.support.apps import App
from tests.support.counting import Counting
from tests.support.waiting import until

REPOSITORY = Path(__file__).parents[2]


def entries(task: StateTask) -> dict[str, list[tuple[bytes, bytes]]]:
    return {s.name: sorted(task.scan(s.name)[1]) for s in task.topology.stores}


def refused(task: StateTask, topic: str) -> None:
    with pytest.raises(LogLost) as error:
        task.open()
    assert error.value.details["topic"] == topic
    assert "holdfast repair changelog" in error.value.message


def from_scratch(task: StateTask) -> Counting:
    """Without the local copy: all that the changelogs give; leaves the task open."""
    task.close()
    shutil.rmtree(task.path)
    listener = Counting()
    task._context = replace(task._context, listener=listener)
    task.open()
    return listener


def refused_falsified(
    task: StateTask, topic: str, monkeypatch: pytest.MonkeyPatch, falsify: Callable[[Chunk], Chunk]
) -> None:
    """A repair whose chunks are falsified on their way is refused, and the topic stays refused."""
    with monkeypatch.context() as patched:
        chunks = Repair._chunks
        patched.setattr(Repair, "_chunks", lambda *a: (falsify(c) for c in chunks(*a)))
        with pytest.raises(LogLost, match="reads back as"):
            repair_task(task)
    refused(task, topic)


def without_last(chunk: Chunk) -> Chunk:
    keys, values, times = chunk
    return keys[:-1], values[:-1], times


def with_another(chunk: Chunk) -> Chunk:
    keys, values, times = chunk
    return [*keys, b"another"], [*values, b"1"], times


def await_end(app: App, store: str, offset: int) -> None:
    """Brokers write the end of a transaction a moment after they said that it is committed."""
    where = (app.topic(store), 0)
    until(lambda: ends(app.kafka.admin(), [where])[where] == offset)


def repairer(app: App, failpoints: str) -> subprocess.CompletedProcess[str]:
    servers = str(app.kafka.properties["bootstrap.servers"])
    state, topology = str(app.root / "host-1"), json.dumps(app.topology.to_json())
    return subprocess.run(
        [sys.executable, "-m", "tests.support.repairer", servers, state, topology],
        cwd=REPOSITORY,
        env={**os.environ, "HOLDFAST_FAILPOINTS": failpoints},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
