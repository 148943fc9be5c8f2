"""Processes of contenders: started, listened to, killed whole; their CPU seconds and memory."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import psutil

SAMPLE_S = 0.25
END_S = 60.0


class Child:
    """A process in a session of its own; the JSON lines of its output are its events.

    Args:
        label: for tables.
        command: to run.
        log: file that takes its output.
        environment: variables on top of ours.
    """

    def __init__(
        self, label: str, command: Sequence[str], log: Path, environment: Mapping[str, str]
    ) -> None:
        self.label, self.log = label, log
        self._read, self._events = 0, list[dict[str, Any]]()
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                start_new_session=True,
            )

    def events(self, **fields: Any) -> list[dict[str, Any]]:
        """Events so far that have all these fields."""
        with self.log.open("rb") as file:
            file.seek(self._read)
            lines = file.read()
        complete = lines[: lines.rfind(b"\n") + 1]
        self._read += len(complete)
        for line in complete.splitlines():
            if line.startswith(b"{"):
                with contextlib.suppress(ValueError):
                    self._events.append(json.loads(line))
        return [e for e in self._events if fields.items() <= e.items()]

    def wait(self, count: int = 1, timeout_s: float = 600, **fields: Any) -> dict[str, Any]:
        """Wait for so many events with these fields; returns the last of them.

        Raises:
            RuntimeError: the process ended, or it took too long; with the log's end.
        """
        deadline = time.monotonic() + timeout_s
        while len(found := self.events(**fields)) < count:
            self.check()
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.label}: no {fields} in {timeout_s} s:\n{self.tail()}")
            time.sleep(0.01)
        return found[count - 1]

    def check(self) -> None:
        """Raise RuntimeError if the process has ended."""
        if (code := self.process.poll()) is not None:
            raise RuntimeError(f"{self.label} ended with {code}:\n{self.tail()}")

    def tail(self) -> str:
        """The end of its output."""
        return self.log.read_text(errors="replace")[-3000:]

    def say(self, line: str) -> None:
        """Write a line to its standard input."""
        if self.process.stdin is not None:
            self.process.stdin.write(f"{line}\n".encode())
            self.process.stdin.flush()

    def kill(self) -> None:
        """SIGKILL the process and all its descendants, and wait until they are gone."""
        tree = self._descendants()
        self.process.kill()
        self._end(tree)

    def stop(self, how: signal.Signals | None = signal.SIGTERM) -> None:
        """Send a signal, unless it was asked otherwise; what stays for long is killed.

        Waits for descendants as well: the next contender shall have the machine for itself.
        """
        tree = self._descendants()
        if self.process.poll() is None:
            if how is not None:
                self.process.send_signal(how)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(END_S)
        if self.process.poll() is None:
            self.process.kill()
        self._end(tree, END_S)

    def _descendants(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self.process.pid).children(recursive=True)
        return []

    def _end(self, tree: list[psutil.Process], patience_s: float = 0) -> None:
        self.process.wait(END_S)
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
        _, alive = psutil.wait_procs(tree, patience_s)
        for process in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(alive, END_S)


class Watch:
    """CPU seconds and resident memory of process trees, sampled by a thread.

    Memory is the sum of resident sizes: pages that forked workers share count in each of them.
    """

    def __init__(self) -> None:
        self._roots: dict[int, str] = {}
        self._cpu: dict[tuple[str, int], float] = {}  # also of processes that have ended
        self._samples: list[tuple[float, float, int]] = []  # when, CPU s so far, resident bytes
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def add(self, *children: Child) -> None:
        """Watch these processes and what they start."""
        self._roots.update({c.process.pid: c.label for c in children})

    def __enter__(self) -> Self:
        """Start sampling."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End sampling."""
        self._stop.set()
        self._thread.join()

    def cpu_s(self, start: float = 0, end: float = float("inf")) -> float:
        """CPU seconds between two times of ``time.monotonic()``, by the nearest samples."""
        self.sample()
        within = [cpu for at, cpu, _ in self._samples if start - SAMPLE_S <= at <= end + SAMPLE_S]
        first = within[0] if start else 0.0
        return within[-1] - first if within else 0.0

    def peak_mib(self) -> int:
        """The most memory of all watched processes together."""
        self.sample()
        return max(rss for _, _, rss in self._samples) >> 20

    def by_process(self) -> dict[str, float]:
        """CPU seconds since the start by root, and apart by program of its descendants."""
        out: dict[str, float] = defaultdict(float)
        for (role, _), cpu in self._cpu.items():
            out[role] += cpu
        return dict(out)

    def sample(self) -> None:
        """Look once."""
        resident = 0
        for role, process in list(self._processes()):
            with contextlib.suppress(psutil.Error), process.oneshot():
                times = process.cpu_times()
                self._cpu[role, process.pid] = times.user + times.system
                resident += process.memory_info().rss
        self._samples.append((time.monotonic(), sum(self._cpu.values()), resident))

    def _processes(self) -> Iterator[tuple[str, psutil.Process]]:
        """All watched processes, by one pass over the machine's."""
        children = defaultdict(list)
        every = {p.pid: p for p in psutil.process_iter(["ppid", "name"])}
        for process in every.values():
            children[process.info["ppid"]].append(process)
        for pid, label in list(self._roots.items()):
            if pid in every:
                yield label, every[pid]
            pending = list(children[pid])
            while pending:
                process = pending.pop()
                pending += children[process.pid]
                yield f"{label}'s {process.info['name']}", process

    def _run(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            self.sample()
