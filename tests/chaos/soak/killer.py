"""Kills processes, and damages stores."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import psutil

from state_lib.protocol.placement import owner_of
from state_lib.stack import supervisor
from tests.chaos.check import TASKS
from tests.chaos.soak.deck import AIRFLOW, CORRUPT, DRIVER, HOST, JVM, SERVICES
from tests.chaos.soak.ledger import Ledger, Loss
from tests.chaos.soak.names import APP
from tests.chaos.soak.scene import Scene
from tests.support.waiting import SLOWNESS, until

DRIVER_S = 60.0
"""A driver may just be starting."""
STOPPED_S, STARTED_S = 60.0, 60.0
"""For a host that is held down, and brought back."""


class Killer:
    """Chooses at random which host is killed and which task loses its store.

    Attributes:
        killed: how often each was.
    """

    def __init__(self, scene: Scene, ledger: Ledger, rng: random.Random) -> None:
        self._scene, self._ledger, self._rng = scene, ledger, rng
        self.killed: Counter[str] = Counter()

    def kill(self, victims: Iterable[str], host: str | None = None) -> list[str]:
        """SIGKILL them, in one go; returns who that was.

        Args:
            victims: of a round.
            host: which one `HOST` is; None: any.
        """
        names = [(host or self._any_host()) if one == HOST else one for one in victims]
        pids = {pid: name for name in names for pid in self._pids(name)}
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # the driver's half went with the other
                os.kill(pid, signal.SIGKILL)
        self.killed.update(names)
        return names

    def take_down(self) -> str:
        """SIGKILL any host, and let nobody start it again; returns its name."""
        host, stack = self._any_host(), self._scene.cluster.stack
        client = supervisor.Client(stack.paths)

        def is_stopped() -> bool:  # who has just exited cannot be stopped, and is started again
            client.stop(host)
            return stack.status()[host].state == "stopped"

        self.kill((HOST,), host)
        until(is_stopped, STOPPED_S, f"{host} stopped")
        return host

    def bring_back(self, host: str) -> None:
        """Start it, and wait until it is healthy."""
        self._scene.cluster.stack.up(only=[host], timeout_s=STARTED_S * SLOWNESS)

    def lose(self, damage: str) -> Loss:
        """Damage a task's directory and SIGKILL its host, which writes nothing in between.

        Not the same task's as last time: to alarms, that might be one incident.
        """
        settings = self._scene.cluster.settings
        before = [one.partition for one in self._ledger.losses[-1:]]
        partition = self._rng.choice([p for p in range(TASKS) if p not in before])
        host = owner_of(APP, partition, settings.host_addresses).id
        folder = settings.home / "state" / host / APP / str(partition)
        built = self._ledger.built(host, partition)
        pid = self._scene.cluster.pid(host)
        gone = folder.with_name(f"{partition}.lost")
        os.kill(pid, signal.SIGSTOP)
        if damage == CORRUPT:
            zero_newest(folder)
        else:
            folder.rename(gone)  # with what is being written just now
        os.kill(pid, signal.SIGKILL)
        shutil.rmtree(gone, ignore_errors=True)
        self.killed[host] += 1
        return self._ledger.lost(Loss(partition, host, damage, time.time(), built))

    def _driver(self) -> psutil.Process | None:
        return next(iter(self._scene.census.living().values()), None)

    def _any_host(self) -> str:
        return self._rng.choice(self._scene.cluster.settings.host_addresses).id

    def _pids(self, name: str) -> list[int]:
        if name in (DRIVER, JVM):
            python = until(self._driver, DRIVER_S, "a driver")
            return [python.pid] if name == DRIVER else [jvm_of(python).pid]
        services = SERVICES if name == AIRFLOW else (name,)
        return [self._scene.cluster.pid(one) for one in services]


def zero_newest(folder: Path) -> None:
    """Zeros in place of RocksDB's newest file of data: older ones may be of no use any more.

    A new file: snapshots that are under way have links to the old one.
    """
    newest = max(folder.glob("*.sst"), key=lambda file: int(file.stem))
    zeros = newest.with_suffix(".zeros")
    zeros.write_bytes(bytes(newest.stat().st_size))
    zeros.replace(newest)


def jvm_of(python: psutil.Process) -> psutil.Process:
    """The JVM of a driver that spark-submit started is its parent."""
    for process in (*python.parents(), *python.children(recursive=True)):
        if process.name() == "java":
            return process
    raise AssertionError(f"no JVM around {python}")
