"""A job that is refused before its driver begins: a process of its own, as supervisors see it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from state_lib.drivers.identity import ID_VARIABLE
from state_lib.drivers.last_words import end_in_log
from state_lib.drivers.sight import Sight
from state_lib.drivers.supervision import Supervision
from state_lib.exits import EXIT_FAILED, EXIT_REFUSED

OURS = "ours"
BEGIN = "from state_lib import Application, Json, Text, agg"


def python(*args: str, typed: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    given = os.environ | {ID_VARIABLE: OURS} | environment
    return subprocess.run(
        [sys.executable, *args],
        env=given,
        input=typed,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ("Application('a/b')", "a/b"),
        ("a = Application('a'); a.stream('t', Text()); a.stream('t', Json('x INT'))", "as Text()"),
        (
            "Application('a').stream('t').group_by('n').aggregate('s', n=agg.count())",
            "fields ['n']",
        ),
        ("Application('a').run()", "max_restarts or HOLDFAST_MAX_RESTARTS"),
    ],
    ids=["name", "two-formats", "field-like-key", "setting"],
)
def test_it_ends_with_a_code_and_with_last_words(job: str, said: str) -> None:
    ended = python("-c", f"{BEGIN}\n{job}", HOLDFAST_MAX_RESTARTS="none")
    lines = ended.stderr.splitlines()
    assert ended.returncode == EXIT_REFUSED, ended.stderr
    assert any(line.startswith("Traceback") for line in lines), "where in the job"
    end = end_in_log(lines, OURS)
    assert end is not None
    assert (end.how, end.retry) == ("failed", False)
    assert said in end.why

    life, nothing = Supervision("a", OURS, 0.0), Sight(at=0)
    assert life.feed(nothing, process=True, now=1.0) == []
    crashed, gave_up = life.feed(nothing, process=False, now=2.0, said=lines)
    assert (crashed.name, gave_up.name) == ("crashed", "gave_up")
    assert said in gave_up.text


def test_any_other_error_ends_as_python_ends_it() -> None:
    ended = python("-c", f"{BEGIN}\nApplication('a')\nraise RuntimeError('a/b')")
    assert ended.returncode == EXIT_FAILED
    assert end_in_log(ended.stderr.splitlines(), OURS) is None


def test_who_tries_out_a_declaration_goes_on() -> None:
    typed = f"{BEGIN}\nApplication('a/b')\nprint('still here')\n"
    ended = python("-i", typed=typed)
    assert "a/b" in ended.stderr
    assert "still here" in ended.stdout
    assert ended.returncode == 0
