"""The tutorial, followed to the letter: its files are written, its commands typed, one by one."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from state_lib.stack.ports import free_port
from tests.support.documents import Block, written
from tests.support.shell import Shell, environment_of
from tests.support.waiting import deadline_in

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]
NAME = "word_count"
BLOCKS = written()["docs/tutorial.md"].blocks
WITHIN_S = 120
"""What stands below a command is there by then."""


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """On ports of its own."""
    hosts = ",".join(f"host-{i}=127.0.0.1:{free_port()}/{free_port()}" for i in (1, 2))
    own = {
        "HOLDFAST_HOSTS": hosts,
        "HOLDFAST_KAFKA_PORT": str(free_port()),
        "HOLDFAST_KAFKA_CONTROLLER_PORT": str(free_port()),
        "HOLDFAST_SPARK_UI_PORT": str(free_port()),
    }
    environment = environment_of(sys.executable, **own)
    try:
        with Shell(tmp_path, environment) as made:
            yield made
    finally:
        with Shell(tmp_path, environment) as last:
            last.run(f"cd {NAME} && holdfast down --wipe")


def test_it_is_as_it_says(shell: Shell, tmp_path: Path) -> None:
    for block in BLOCKS:
        if block.title:
            path = tmp_path / NAME / block.title
            assert path.parent.is_dir(), f"'holdfast new' writes no {path.parent.name}/"
            path.write_text(block.text)
        elif block.language == "console":
            follow(shell, block)


def follow(shell: Shell, block: Block) -> None:
    """Type what is typed; where something should be seen, look again until it is."""
    steps = steps_of(block)
    patient = any(seen for _, seen in steps)
    deadline = deadline_in(WITHIN_S if patient else 0)
    while wrong := first_wrong(shell, steps):
        assert time.monotonic() < deadline, f"docs/tutorial.md, line {block.line}: {wrong}"
        time.sleep(1)


def steps_of(block: Block) -> list[tuple[str, list[str]]]:
    """Each command of a block, and what should be seen below it."""
    steps: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            steps.append((line[2:], []))
        else:
            steps[-1][1].append(line)
    return steps


def first_wrong(shell: Shell, steps: list[tuple[str, list[str]]]) -> str | None:
    for command, seen in steps:
        code, said = shell.run(command)
        if code != 0 or not all(is_in(line, said) for line in seen):
            return f"{command!r} ended with {code} and said\n{said}\nwhere it should say {seen}"
    return None


def is_in(line: str, text: str) -> bool:
    """Whether the parts of a line between its ``…`` follow each other in a text."""
    at, flat = 0, " ".join(text.split())
    for part in line.split("…"):
        wanted = " ".join(part.split())
        found = flat.find(wanted, at)
        if found < 0:
            return False
        at = found + len(wanted)
    return True


def test_what_should_be_seen_is_looked_for() -> None:
    assert is_in('{"a":1,"b":…}', 'x\n{"a":1,"b":2}\n')
    assert not is_in('{"a":1,"b":…}', '{"a":2,"b":1}')
    assert is_in("… host-1 … healthy …", "| host-1 |  running | healthy |")
    assert not is_in("… host-1 … healthy …", "| healthy | host-1 |")
