"""Real processes: a parent with a child that works."""

import sys
from pathlib import Path

import psutil
import pytest

from benchmarks.processes import Child, Watch

WORK = (
    "x = sum(range(30_000_000)); b = b'x' * 50_000_000\n"
    'print(\'{"event": "done"}\', flush=True)\n'
)
PARENT = (
    "import subprocess, sys, os\n"
    f"child = subprocess.Popen([sys.executable, '-c', {WORK + 'input()'!r}])\n"
    "print('not json', os.environ['GIVEN'])\n"
    'print(\'{"event": "started", "pid": %d}\' % child.pid, flush=True)\n'
    "child.wait()\n"
)


def start(tmp_path: Path, code: str = PARENT) -> Child:
    command = [sys.executable, "-c", code]
    return Child("parent", command, tmp_path / "log", {"GIVEN": "thing"})


def test_cpu_and_memory_of_the_whole_tree(tmp_path: Path) -> None:
    child = start(tmp_path)
    with Watch() as watch:
        watch.add(child)
        child.wait(event="done", timeout_s=120)
        cpu_s, peak_mib = watch.cpu_s(), watch.peak_mib()
    child.stop()
    pid = child.events(event="started")[0]["pid"]
    name = next(role for role in watch.by_process() if role != "parent")
    assert watch.by_process()[name] > 0.1
    assert cpu_s >= watch.by_process()[name]
    assert peak_mib > 50
    assert not psutil.pid_exists(pid)


def test_a_kill_leaves_no_descendants(tmp_path: Path) -> None:
    child = start(tmp_path)
    grandchild = psutil.Process(child.wait(event="started", timeout_s=120)["pid"])
    child.kill()
    assert not grandchild.is_running()


def test_what_ended_is_reported_with_its_log(tmp_path: Path) -> None:
    child = start(tmp_path, "print('the reason'); raise SystemExit(3)")
    with pytest.raises(RuntimeError, match=r"parent ended with 3:\nthe reason"):
        child.wait(event="never", timeout_s=120)


def test_events_come_once_each_and_only_whole_lines(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "for n in (1, 2):\n"
        '    print(\'{"event": "tick", "n": %d}\' % n, flush=True)\n'
        "print('{\"event\": \"tick\"', end='', flush=True)\n"
        "input()\n"
    )
    child = start(tmp_path, code)
    assert child.wait(2, event="tick", timeout_s=120)["n"] == 2
    assert [e["n"] for e in child.events()] == [1, 2]
    assert child.events(n=1) == [{"event": "tick", "n": 1}]
    child.say("end")
    child.stop(None)
