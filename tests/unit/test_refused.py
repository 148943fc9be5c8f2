"""A job that is refused before its driver begins: a process of its own, as supervisors see it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from state_lib.drivers.identity import ID_VARIABLE
from state_lib.drivers.last_words import end_in_log
from state_lib.drivers.sight import Sight
from state_lib.drivers.supervision import Supervision
from state_lib.exits import EXIT_CONFIGURATION, EXIT_FAILED, EXIT_STOPPED

OURS = "ours"
BEGIN = "from state_lib import Application, agg"


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
        ("a = Application('a'); a.stream('t', format='text'); a.stream('t', 'x INT')", "as text"),
        (
            "Application('a').stream('t', 'n INT').groupBy('n').agg('s', n=agg.count())",
            "fields ['n']",
        ),
        ("Application('a').stream('t').where('vlaue IS NULL')", "step 1, where cannot be computed"),
        ("Application('a').stream('t').selct('key')", "no verb and no column 'selct'"),
        (
            "import os; os.environ['HOLDFAST_MAX_RESTARTS'] = 'none'; Application('a')",
            "max_restarts or HOLDFAST_MAX_RESTARTS",
        ),
    ],
    ids=["name", "two-formats", "field-like-key", "typo", "verb", "setting"],
)
def test_it_ends_with_a_code_and_with_last_words(job: str, said: str) -> None:
    ended = python("-c", f"{BEGIN}\n{job}")
    lines = ended.stderr.splitlines()
    assert ended.returncode == EXIT_CONFIGURATION, ended.stderr
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


def test_a_signal_to_stop_while_it_declares_is_a_stop() -> None:
    job = "import os, signal; Application('a'); os.kill(os.getpid(), signal.SIGTERM); print('on')"
    ended = python("-c", f"{BEGIN}\n{job}")
    end = end_in_log(ended.stderr.splitlines(), OURS)
    assert (ended.returncode, ended.stdout) == (EXIT_STOPPED, ""), ended.stderr
    assert end is not None
    assert (end.how, end.retry) == ("stopped", False)


@pytest.mark.parametrize("last", ["app.run()", "app.start().awaitTermination()"])
def test_a_signal_to_stop_counts_where_its_exception_is_swallowed(last: str) -> None:
    """As some libraries do that try an import: the job would stream on, and nobody would know."""
    job = [
        "import os, signal",
        "app = Application('a')",
        "app.stream('t').groupBy('key').count('s')",
        "try: os.kill(os.getpid(), signal.SIGTERM)",
        "except BaseException: print('swallowed')",
        last,
    ]
    ended = python("-c", "\n".join([BEGIN, *job]))
    assert ended.stdout == "swallowed\n", "the exception came"
    assert ended.returncode == EXIT_STOPPED, ended.stderr
    assert ended.stderr.count("last words") == 1


@pytest.mark.parametrize("name", ["state_lib.kafka_door", "confluent_kafka.cimpl", "structlog.dev"])
def test_a_signal_to_stop_in_the_middle_of_an_import(name: str, tmp_path: Path) -> None:
    """What it would import is there in part, and would fail."""
    job = [
        "import os, signal, sys",
        "class Finder:",
        "    def find_spec(self, name, *_):",
        f"        if name == {name!r}: os.kill(os.getpid(), signal.SIGTERM)",
        "sys.meta_path.insert(0, Finder())",
        "Application('a')",
        "print('on')",
    ]
    ended = python("-c", "\n".join([BEGIN, *job]), TMPDIR=str(tmp_path))
    end = end_in_log(ended.stderr.splitlines(), OURS)
    assert (ended.returncode, ended.stdout) == (EXIT_STOPPED, ""), ended.stderr
    assert end is not None
    assert (end.how, end.retry) == ("stopped", False)
    assert not list(tmp_path.glob("holdfast-jvm-*")), "where the JVM says how to join it"


def test_a_signal_to_stop_is_a_stop_where_nobody_reads_the_log() -> None:
    job = "import os, signal; Application('a'); os.close(2); os.kill(os.getpid(), signal.SIGTERM)"
    assert python("-c", f"{BEGIN}\n{job}").returncode == EXIT_STOPPED


def test_a_signal_to_stop_whose_exception_becomes_another_one_is_a_stop() -> None:
    job = [
        "import os, signal",
        "Application('a')",
        "try: os.kill(os.getpid(), signal.SIGTERM)",
        "except BaseException: raise ImportError('of it')",
    ]
    ended = python("-c", "\n".join([BEGIN, *job]))
    assert ended.returncode == EXIT_STOPPED, ended.stderr
    assert "ImportError: of it" in ended.stderr
    assert ended.stderr.count("last words") == 1


def test_who_is_to_be_told_of_a_stop_hears_of_one_that_was_swallowed() -> None:
    """Between a stream's last look for one and the thread that watches it."""
    job = [
        "import os, signal",
        "from state_lib.refused import on_stop",
        "Application('a')",
        "try: os.kill(os.getpid(), signal.SIGTERM)",
        "except BaseException: pass",
        "on_stop(lambda: print('told'))",
    ]
    assert python("-c", "\n".join([BEGIN, *job])).stdout == "told\n"


def test_a_signal_that_the_job_hears_itself_stays_its_own() -> None:
    job = "signal.signal(signal.SIGTERM, lambda *_: print('mine')); Application('a')"
    ended = python("-c", f"import os, signal\n{BEGIN}\n{job}\nos.kill(os.getpid(), signal.SIGTERM)")
    assert (ended.returncode, ended.stdout.strip()) == (0, "mine"), ended.stderr


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
